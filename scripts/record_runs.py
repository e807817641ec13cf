"""Make the bundled runs again: `make runs`. Each is a real run of the embedded model, and says what it shows."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from eab import record
from eab.config import BranchingConfig
from eab.engine import generate
from eab.models.loading import load_model
from eab.run import fold

FOLDER = Path(__file__).resolve().parent.parent / "assets" / "runs"


class Example(NamedTuple):
    """A prompt, the settings that differ from `COMMON`, and what a viewer sees."""

    file: str
    title: str
    shows: str
    prompt: str
    settings: dict[str, Any]


COMMON: dict[str, Any] = {"min_fork_weight": 0.01, "max_paths": 12, "max_new_tokens": 40, "kv_limit_mib": 1024}
EXAMPLES = [
    Example(
        "story.eab",
        "A story with many ways on",
        "The model hesitates at names and deeds, not at grammar.",
        "Once upon a time, there was a little",
        {"seed": 7, "entropy_threshold": 1.2},
    ),
    Example(
        "coin.eab",
        "A coin: exactly one bit",
        "Two equally likely words: entropy 1 bit (0.69 nats), and one fork.",
        "I tossed a coin and it landed on",
        {"max_new_tokens": 16, "entropy_threshold": 0.6},
    ),
    Example(
        "capital.eab",
        "A fact that the model knows",
        "Low entropy at the answer: no fork where the model is sure.",
        "Question: What is the capital of France?\nAnswer:",
        {"max_new_tokens": 16},
    ),
    Example(
        "original.eab",
        "The published rule, same story",
        "Policy `original`: leaves count equally, and the tree narrows to a few beams at its limit.",
        "Once upon a time, there was a little",
        {"seed": 7, "entropy_threshold": 1.2, "policy": "original", "min_fork_weight": 0.0},
    ),
    Example(
        "long.eab",
        "A long story, twenty paths",
        "Sharing pays most while paths are young: watch private rows grow.",
        "One day, a girl named Lily went to the park. She saw",
        {"seed": 3, "max_paths": 20, "max_new_tokens": 100, "entropy_threshold": 1.5},
    ),
]


def main() -> None:
    """Write every run file and the catalogue."""
    model = load_model()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for example in EXAMPLES:
        events = list(generate(model, example.prompt, BranchingConfig(**(COMMON | example.settings))))
        record.save(events, FOLDER / example.file)
        print(f"{example.file}: {len(events)} events, {len(fold(events).leaves())} leaves")
    catalogue = [{"file": e.file, "title": e.title, "shows": e.shows} for e in EXAMPLES]
    (FOLDER / "catalogue.json").write_text(json.dumps(catalogue, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
