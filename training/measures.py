"""Measures of a trained model: loss on texts, known distributions, facts by how often they were
shown, and its own stories.

All measures work with any causal language model of transformers. Losses are in nats per character,
not per token, so that models with different tokenizers can be compared.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import torch

from training import knowledge
from training.choices import Choice, known_distributions
from training.probe import Prober

CONTEXT: Final = 512
STORY_PROMPT: Final = "Once upon a time"
PIECE_CHARACTERS: Final = 1500


def nats_per_character(prober: Prober, documents: Iterable[str]) -> float:
    """Loss per character over the first 511 tokens of each document, its first token included."""
    nats, characters = 0.0, 0
    for document in documents:
        ids = prober.encode(document)[:CONTEXT]
        scores = prober.log_probabilities(ids)[:-1]
        nats -= float(scores.gather(1, torch.tensor(ids[1:])[:, None]).double().sum())
        characters += len(prober.decode(ids))
    return nats / characters


def pieces(text: str, count: int) -> list[str]:
    """`count` pieces of equal length, spread evenly over a text that has no documents."""
    starts = range(0, len(text) - PIECE_CHARACTERS, max(1, len(text) // count))
    return [text[start : start + PIECE_CHARACTERS] for start in starts][:count]


@dataclass(frozen=True, slots=True)
class ChoiceError:
    """Mean absolute error of the entropy, and mean divergence from the truth, in bits."""

    prompts: int
    entropy: float
    divergence: float


def choice_error(prober: Prober, choices: Iterable[Choice]) -> ChoiceError:
    """How far the model is from the distributions from which its training text was drawn."""
    readings = [
        prober.read(prompt, words) for prompt, words in known_distributions(choices).items()
    ]
    return ChoiceError(
        len(readings),
        statistics.fmean(reading.error for reading in readings),
        statistics.fmean(reading.divergence for reading in readings),
    )


def fact_questions() -> dict[str, list[tuple[str, str]]]:
    """Prompts with the expected start of the answer, by group; capitals by how often shown."""
    capitals = [
        (f"The capital of {country} is", city) for country, city in knowledge.CAPITALS.items()
    ]
    rare = [
        (f"The capital of {country} is", city) for country, city in knowledge.RARE_CAPITALS.items()
    ]
    words = knowledge.NUMBERS
    pairs = list(product(range(11), repeat=2))
    return {
        "capitals, 20 best known": capitals[:20],
        "capitals, other common ones": capitals[20:],
        "capitals, rarely shown": rare,
        "general questions": [
            (f"Question: {question}\nAnswer:", f"{short[0].upper()}{short[1:]}.")
            for question, _, short in knowledge.GENERAL_FACTS
        ],
        "sums in words, 0 to 10": [
            (f"{words[a].capitalize()} plus {words[b]} is", f"{words[a + b]}.") for a, b in pairs
        ],
        "sums in digits, 0 to 10": [
            (f"Question: What is {a} + {b}?\nAnswer:", f"{a + b}.") for a, b in pairs
        ],
    }


def share_right(prober: Prober, questions: Iterable[tuple[str, str]]) -> float:
    """The share of prompts after which the most likely tokens are the expected answer."""
    return statistics.fmean(
        prober.would_write(answer, after=prompt) for prompt, answer in questions
    )


def mean_entropy(prober: Prober, questions: Iterable[tuple[str, str]]) -> float:
    """The mean entropy of the first token of the answer, in bits."""
    return statistics.fmean(prober.next_token_entropy(prompt) for prompt, _ in questions)


@dataclass(frozen=True, slots=True)
class Stories:
    """Sampled stories: their token ids, including the prompt, and how many of them ended."""

    prompt_length: int
    ids: tuple[tuple[int, ...], ...]
    ended: int


@torch.no_grad()
def sample_stories(prober: Prober, count: int, seed: int) -> Stories:
    """Sample `count` stories at temperature 1. Each ends by itself or when the context is full."""
    prompt = torch.tensor([prober.encode(STORY_PROMPT)], device=prober.model.device)
    torch.manual_seed(seed)
    room = min(CONTEXT, prober.model.config.max_position_embeddings) - prompt.size(1)
    output = prober.model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=room,
        do_sample=True,
        top_k=0,
        num_return_sequences=count,
    )
    end = prober.tokenizer.eos_token_id
    stories, ended = [], 0
    for line in output.tolist():
        new = line[prompt.size(1) :]
        if end in new:
            ended += 1
            new = new[: new.index(end)]
        stories.append((*prompt[0].tolist(), *new))
    return Stories(prompt.size(1), tuple(stories), ended)


def repeated(texts: Iterable[str], words: int = 4) -> float:
    """The share of sequences of four words that occur earlier in the same text."""
    seen_before, total = 0, 0
    for text in texts:
        parts = text.split()
        runs = [tuple(parts[at : at + words]) for at in range(len(parts) - words + 1)]
        seen_before += len(runs) - len(set(runs))
        total += len(runs)
    return seen_before / total if total else math.nan


def forks_per_100_tokens(prober: Prober, stories: Stories, threshold: float) -> float:
    """How many of a hundred positions in the model's own stories reach the threshold (nats)."""
    reached, places = 0, 0
    for ids in stories.ids:
        scores = prober.log_probabilities(list(ids))[stories.prompt_length - 1 : -1]
        entropies = -(scores.exp() * scores).sum(-1)
        reached += int((entropies >= threshold).sum())
        places += len(entropies)
    return 100 * reached / places if places else math.nan


def texts_of(prober: Prober, stories: Stories) -> list[str]:
    return [prober.decode(list(ids)) for ids in stories.ids]


def prefixes(
    documents: Sequence[Sequence[int]], count: int, room: int, seed: int
) -> list[list[int]]:
    """`count` document prefixes, cut at random, that leave `room` tokens in the context."""
    generator = torch.Generator().manual_seed(seed)

    def draw(high: int) -> int:
        return int(torch.randint(high, (1,), generator=generator))

    long_enough = [ids for ids in documents if len(ids) > 1]
    chosen = [long_enough[draw(len(long_enough))] for _ in range(count)]
    return [list(ids[: 1 + draw(min(len(ids), CONTEXT - room) - 1)]) for ids in chosen]
