"""Writes the bundled questions with known answers, and the prompts with known entropies of the
Quantization page: `python scripts/write_questions.py`.

The embedded model was trained on these facts and choices (training/knowledge.py,
training/choices.py), so the right answers and the true distributions are known.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from eab.engine.models.sources import EMBEDDED_FOLDER
from eab.labs import measure_quantization as measure
from eab.labs.tuning.prompt_sets import QUESTIONS, STORIES
from training.choices import (
    BAG_CHOICES,
    CHAINED_CHOICES,
    COUNTING_CHOICES,
    FIXED_CHOICES,
    Choice,
    entropy_bits,
    known_distributions,
)
from training.knowledge import CAPITALS, GENERAL_FACTS, NUMBERS, RARE_CAPITALS

OPENINGS = {
    "once": "Once upon a time, there was a",
    "cat": "The cat sat on the",
    "girl": "One day, a girl named",
    "box": "He opened the box and",
    "forest": "Deep in the forest lived a",
    "morning": "On a sunny morning, Tom and his dog",
    "secret": "Lily had a secret. She",
    "rain": "It began to rain, so the children",
}
EVERY = 4  # step through the counting choices, which all have the same distribution


def facts() -> Iterator[dict[str, Any]]:
    """Capitals by how often training showed them, general facts, sums in words and in digits."""
    cities = list(CAPITALS.items())
    groups = {
        "capitals, best known": cities[:20],
        "capitals, common": cities[20:],
        "capitals, rarely shown": list(RARE_CAPITALS.items()),
    }
    for group, members in groups.items():
        for country, city in members:
            for prompt in (
                f"The capital of {country} is",
                f"Question: What is the capital of {country}?\nAnswer:",
            ):
                yield {"group": group, "prompt": prompt, "answers": [city]}
    for question, long, short in GENERAL_FACTS:
        prompt = f"Question: {question}\nAnswer:"
        yield {"group": "general facts", "prompt": prompt, "answers": [short, long]}
    for a, b in product(range(11), repeat=2):
        prompt = f"{NUMBERS[a].capitalize()} plus {NUMBERS[b]} is"
        yield {"group": "sums in words", "prompt": prompt, "answers": [NUMBERS[a + b]]}
    for a, b in product(range(11), repeat=2):
        prompt = f"Question: What is {a} + {b}?\nAnswer:"
        yield {"group": "sums in digits", "prompt": prompt, "answers": [str(a + b)]}


def chances() -> Iterator[dict[str, Any]]:
    """Choices with the true distribution of the first sentence, without those that draw a name."""
    groups = {
        "fixed sentences": FIXED_CHOICES,
        "chains of choices": CHAINED_CHOICES,
        "balls in a bag": BAG_CHOICES,
        "finds or loses": COUNTING_CHOICES[::EVERY],
    }
    for group, choices in groups.items():
        for choice in choices:
            masses: defaultdict[str, float] = defaultdict(float)
            for text, mass in texts(choice):
                masses[text.split(".")[0].strip() + "."] += mass
            if not any("NAME" in text for text in masses):
                rounded = {text: round(mass, 9) for text, mass in masses.items()}
                yield {"group": group, "prompt": choice.prompt, "distribution": rounded}


def texts(choice: Choice) -> Iterator[tuple[str, float]]:
    """Every text that may follow the prompt, with its probability."""
    for word, mass in choice.words.items():
        after = choice.after(word)
        if isinstance(after, Choice):
            for text, further in texts(after):
                yield f" {word}{after.prompt}{text}", mass * further
        else:
            for ending in after:
                yield f" {word}{ending}", mass / len(after)


def stories() -> Iterator[dict[str, Any]]:
    """Openings of stories, without known answers."""
    for name, opening in OPENINGS.items():
        yield {"group": "stories", "id": name, "prompt": opening}


def write_known_entropies() -> None:
    """Write the entropy of the first token, in bits, after each prompt with fixed choices."""
    tokenizer, known = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER), {}
    for prompt, words in known_distributions(FIXED_CHOICES).items():
        first: defaultdict[str, float] = defaultdict(float)
        for word, probability in words.items():
            ids = tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
            first[str(ids[0])] += probability
        known[prompt] = round(entropy_bits(first), 6)
    file = measure.FOLDER / "known_entropies.json"
    file.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def write(file: Path, prompts: Iterable[dict[str, Any]]) -> None:
    lines = [json.dumps(prompt, ensure_ascii=False) for prompt in prompts]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(QUESTIONS, (*facts(), *chances()))
    write(STORIES, stories())
    write_known_entropies()
