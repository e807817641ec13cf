"""Measure a trained model: stories, known distributions, facts and sums.

    python -m training.evaluate assets/model --text ../shared/data/tinystories_heldout_data00.txt

Works with every causal language model folder that transformers loads, so that models with different
tokenizers can be compared; hence nats per character and not per token.
"""

import argparse
import os
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from training import knowledge
from training.choices import BAG_CHOICES, COUNTING_CHOICES, FIXED_CHOICES
from training.corpus import read_documents
from training.probe import Prober

DOCUMENTS = 150
CONTEXT = 512


@dataclass(frozen=True)
class Result:
    """One line of the report."""

    name: str
    value: str


def nats_per_character(prober: Prober, documents: Iterable[str], limit: int) -> float:
    """Loss over the first ``limit`` tokens of each document, the very first included, per character."""
    nats, characters = 0.0, 0
    for document in documents:
        ids = prober.encode(document)[:limit]
        scores = prober.log_probabilities(ids)[:-1]
        nats -= float(scores.gather(1, torch.tensor(ids[1:])[:, None]).double().sum())
        characters += len(prober.decode(ids))
    return nats / characters


def share_right(prober: Prober, questions: Iterable[tuple[str, str]]) -> float:
    """Share of prompts after which the model, always taking the likeliest token, writes the expected answer."""
    return statistics.fmean(prober.would_write(answer, after=prompt) for prompt, answer in questions)


def fact_questions() -> dict[str, list[tuple[str, str]]]:
    """Groups of (prompt, expected beginning of the answer)."""
    capitals = [(f"The capital of {country} is", city) for country, city in knowledge.CAPITALS.items()]
    rare = [(f"The capital of {country} is", city) for country, city in knowledge.RARE_CAPITALS.items()]
    words = knowledge.NUMBERS
    pairs = list(product(range(11), repeat=2))
    return {
        "capitals, 20 best known": capitals[:20],
        "capitals, the other common ones": capitals[20:],
        "capitals, rare ones": rare,
        "general questions": [
            (f"Question: {question}\nAnswer:", f"{short[0].upper()}{short[1:]}.")
            for question, _, short in knowledge.GENERAL_FACTS
        ],
        "sums in words": [(f"{words[a].capitalize()} plus {words[b]} is", f"{words[a + b]}.") for a, b in pairs],
        "sums in digits": [(f"Question: What is {a} + {b}?\nAnswer:", f"{a + b}.") for a, b in pairs],
    }


def choice_results(prober: Prober) -> list[Result]:
    """Mean error of the entropy and mean divergence by family, then the fixed prompts one by one."""
    results = []
    for name, choices in (("fixed", FIXED_CHOICES), ("bag", BAG_CHOICES), ("counting", COUNTING_CHOICES)):
        readings = [prober.read(choice.prompt, choice.words) for choice in choices]
        error = statistics.fmean(reading.error for reading in readings)
        divergence = statistics.fmean(reading.divergence for reading in readings)
        label = f"{name} choices ({len(readings)})"
        results.append(Result(label, f"entropy error {error:.3f} bits, divergence {divergence:.3f} bits"))
    for choice in FIXED_CHOICES:
        reading = prober.read(choice.prompt, choice.words)
        bits = f"{reading.entropy:.2f} bits (true {reading.true_entropy:.2f})"
        results.append(Result(repr(choice.prompt), bits))
    return results


def load_prober(folder: Path) -> Prober:
    """Model and tokenizer of ``folder``, in float32, ready for measuring."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    return Prober(model, tokenizer)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure a trained model.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, action="append", default=[], help="file for nats per character")
    parser.add_argument("--text-only", action="store_true", help="skip facts and choices")
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="documents to read of each file")
    options = parser.parse_args()
    prober = load_prober(options.model)
    results = []
    for path in options.text:
        documents = read_documents(path)[: options.documents]
        loss = nats_per_character(prober, documents, CONTEXT)
        results.append(Result(path.name, f"{loss:.4f} nats per character"))
    if not options.text_only:
        results += [
            Result(name, f"{share_right(prober, questions):.0%} of {len(questions)}")
            for name, questions in fact_questions().items()
        ]
        results += choice_results(prober)
    table = Table("measure", "value", title=str(options.model))
    for result in results:
        table.add_row(result.name, result.value)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
