"""Measure the embedded models and write the quality report next to them.

    python -m training.evaluate --data DATA --draft assets/draft --peer FOLDER

Writes `quality.md` (the table in docs/model.md) and `stories.md` (fifty stories, none left out) to
the model's folder. `--draft` adds a column for the draft model, with its acceptance rates.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from rich.console import Console
from rich.markdown import Markdown
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from eab.config import BranchingConfig
from training import measures, synthetic
from training.acceptance import acceptance_rate, accepted_lengths
from training.choices import BAG_CHOICES, CHAINED_CHOICES, COUNTING_CHOICES, FIXED_CHOICES
from training.corpus import read_documents
from training.probe import Prober

DOCUMENTS: Final = 150
STORIES: Final = 50
PREFIXES: Final = 1000
DRAFT_LENGTHS: Final = range(1, 9)
SEED: Final = 20
HELD_OUT: Final = {
    "head of llama2.c's validation shard, nats per character": "tinystories_heldout_data00.txt",
    "head of the V1 validation file, nats per character": "tinystories_heldout_validV1.txt",
}
OUT_OF_DOMAIN: Final = (
    "Shakespeare (out of domain), nats per character",
    "tinyshakespeare_ood.txt",
)
FAMILIES: Final = {
    "fixed sentences, 0 to 3 bits": FIXED_CHOICES,
    "chains of choices": CHAINED_CHOICES,
    "balls in a bag": BAG_CHOICES,
    "finds or loses": COUNTING_CHOICES,
}
Column = dict[str, str]


def load_prober(folder: Path) -> Prober:
    """Load model and tokenizer from ``folder``, in float32, ready for measuring."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    return Prober(model, tokenizer)


def text_column(prober: Prober, data: Path, stories: measures.Stories) -> Column:
    """The measures that any story model allows."""
    column = {"parameters": f"{prober.model.num_parameters() / 1e6:.2f} M"}
    for label, name in HELD_OUT.items():
        loss = measures.nats_per_character(prober, read_documents(data / name)[:DOCUMENTS])
        column[label] = f"{loss:.3f}"
    label, name = OUT_OF_DOMAIN
    shakespeare = measures.pieces((data / name).read_text(encoding="utf-8"), DOCUMENTS)
    column[label] = f"{measures.nats_per_character(prober, shakespeare):.3f}"
    column["stories that end within the context"] = f"{stories.ended / len(stories.ids):.0%}"
    repeated = measures.repeated(measures.texts_of(prober, stories))
    column["four-word runs repeated within a story"] = f"{repeated:.1%}"
    threshold = BranchingConfig().entropy_threshold
    forks = measures.forks_per_100_tokens(prober, stories, threshold)
    column[f"places per 100 tokens that reach {threshold} nats"] = f"{forks:.0f}"
    return column


def knowledge_column(prober: Prober) -> Column:
    """The measures that need a model trained on our facts and choices."""
    column = {}
    for family, choices in FAMILIES.items():
        error = measures.choice_error(prober, choices)
        label = f"{family} ({error.prompts}): entropy error, divergence in bits"
        column[label] = f"{error.entropy:.3f}, {error.divergence:.3f}"
    for group, questions in measures.fact_questions().items():
        right, entropy = (
            measures.share_right(prober, questions),
            measures.mean_entropy(prober, questions),
        )
        column[f"{group} ({len(questions)}): right, entropy at the answer"] = (
            f"{right:.0%}, {entropy:.2f} bits"
        )
    return column


def acceptance_column(target: Prober, draft: Prober, stories: measures.Stories) -> Column:
    """The draft model's acceptance rates in the target's stories and in facts and choices."""
    facts = [
        target.encode(text)
        for text, _ in zip(synthetic.documents(SEED), range(PREFIXES), strict=False)
    ]
    column = {}
    for kind, documents in (("stories", stories.ids), ("facts and choices", facts)):
        starts = measures.prefixes(documents, PREFIXES, max(DRAFT_LENGTHS), SEED)
        accepted = accepted_lengths(target, draft, starts, max(DRAFT_LENGTHS), SEED)
        label = f"accepted in {kind} at draft lengths 1 to 8"
        column[label] = ", ".join(
            f"{acceptance_rate(accepted, length):.2f}" for length in DRAFT_LENGTHS
        )
    return column


def table(columns: Mapping[str, Column]) -> str:
    """The columns as a Markdown table. A measure that a column lacks shows a dash."""
    labels = dict.fromkeys(label for column in columns.values() for label in column)
    lines = [f"| | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    lines += [
        f"| {label} | {' | '.join(column.get(label, '-') for column in columns.values())} |"
        for label in labels
    ]
    return "\n".join(lines) + "\n"


def write_stories(path: Path, texts: Sequence[str]) -> None:
    head = (
        f"# Fifty stories, unselected\n\nAfter the prompt {measures.STORY_PROMPT!r}, temperature 1, seed {SEED}, "
        "written by `python -m training.evaluate`. None was left out.\n"
    )
    body = [
        f"\n## {number}\n\n```text\n{text.strip()}\n```\n"
        for number, text in enumerate(texts, start=1)
    ]
    path.write_text(head + "".join(body), encoding="utf-8")


def report(options: argparse.Namespace) -> str:
    """Measure all models that the options name, and write the stories. Returns the table."""
    target = load_prober(options.model)
    stories = measures.sample_stories(target, STORIES, SEED)
    write_stories(options.model / "stories.md", measures.texts_of(target, stories))
    columns = {"embedded": text_column(target, options.data, stories) | knowledge_column(target)}
    if options.draft:
        draft = load_prober(options.draft)
        own = measures.sample_stories(draft, STORIES, SEED)
        accepted = acceptance_column(target, draft, stories)
        columns["draft"] = (
            text_column(draft, options.data, own) | knowledge_column(draft) | accepted
        )
    for folder in options.peer:
        peer = load_prober(folder)
        own = measures.sample_stories(peer, STORIES, SEED)
        columns[folder.name.removesuffix("-hf")] = text_column(peer, options.data, own)
    return table(columns)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure the embedded models and write the quality report."
    )
    parser.add_argument("--model", type=Path, default=Path("assets/model"))
    parser.add_argument("--draft", type=Path, help="folder of its draft model")
    parser.add_argument(
        "--peer",
        type=Path,
        action="append",
        default=[],
        help="another model, for the text measures",
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with the held-out texts")
    options = parser.parse_args()
    text = report(options)
    (options.model / "quality.md").write_text(text, encoding="utf-8")
    Console(width=140).print(Markdown(text))


if __name__ == "__main__":
    main()
