"""Record the bundled runs: `make runs`. Each is a real run of the embedded model with a sentence
about what it shows; check these sentences after recording.

`--sweeps` records only the two bundled sweeps, over caches and over draft lengths: one run file per
variant.
"""

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

from app.server import bundled_runs
from eab import record
from eab.analysis.sweep import Sweep, cache_sweep, draft_length_sweep
from eab.config import BranchingConfig
from eab.engine.loop import generate
from eab.engine.request import Request
from eab.engine.sweeping import run_sweep
from eab.events import Event, RunEnded
from eab.figures.captions import sweep_sentence
from eab.models.huggingface import HuggingFaceModel
from eab.models.loading import EMBEDDED_DRAFT, load_model
from eab.run import fold


class Example(NamedTuple):
    """A bundled run.

    Attributes:
        file: Its file name.
        title: Its title.
        shows: What a viewer sees in it, in a sentence.
        prompt: Its prompt.
        settings: The settings that differ from `COMMON`.
    """

    file: str
    title: str
    shows: str
    prompt: str
    settings: dict[str, Any]


COMMON: dict[str, Any] = {"min_fork_weight": 0.03, "max_paths": 16, "kv_limit_mib": 1024}
BALL = (
    "One day, a boy named Tim went to the park with his dog. They ran and played with a big red "
    "ball all morning. Then the ball rolled under a bush, and Tim could not see it. The dog looked "
    "at the bush and barked. "
    "Tim looked under the bush and saw"
)
EXAMPLES = [
    Example(
        "ball.eab",
        "A story at a turning point",
        "The model is sure of the grammar and unsure of what happens next. After three "
        "steps there are 12 paths, the limit; all share the long prompt.",
        BALL,
        {
            "temperature": 0.8,
            "entropy_threshold": 1.2,
            "max_new_tokens": 36,
            "min_fork_weight": 0.1,
            "max_paths": 12,
        },
    ),
    Example(
        "road.eab",
        "Two ways on",
        "One fork, then certainty: left leads to the river, right to the village.",
        "At the end of the road I turned",
        {"max_new_tokens": 12, "branch_factor": 2},
    ),
    Example(
        "coin.eab",
        "A coin: one bit",
        "Two words are equally likely in the training text; the entropy is close to 1 bit, "
        "which is 0.69 nats.",
        "I tossed a coin and it landed on",
        {"max_new_tokens": 12, "branch_factor": 2, "entropy_threshold": 0.5},
    ),
    Example(
        "coins.eab",
        "Three coins: one bit, three times",
        "Every coin forks every path: eight texts, each with a weight near 1/8, and 3 bits in all.",
        "I tossed three coins:",
        {"max_new_tokens": 8, "branch_factor": 2, "entropy_threshold": 0.5},
    ),
    Example(
        "bent.eab",
        "A coin that is almost sure",
        "The model gives heads 91 %: 0.31 nats, below the threshold of 0.65, so it does not "
        "fork. Try a threshold of 0.2.",
        "This coin shows heads nine times out of ten. It landed on",
        {"max_new_tokens": 6, "branch_factor": 2},
    ),
    Example(
        "bag.eab",
        "Odds given in the prompt",
        "Three red balls, one blue: the odds are 75 to 25, which the model has to read from "
        "the prompt. It gives 68 to 32.",
        "A bag has three red balls and one blue ball. I take one ball. It is",
        {"max_new_tokens": 6, "branch_factor": 2, "entropy_threshold": 0.4},
    ),
    Example(
        "rain.eab",
        "A fork that decides the answer",
        "Yes or no is the only doubt; the rest of each answer follows from it.",
        "User: Will it rain today?\nAssistant:",
        {"max_new_tokens": 14, "branch_factor": 2},
    ),
    Example(
        "wording.eab",
        "A fork in words, not in meaning",
        "Two ways to say one answer: high entropy alone does not mean that the model doubts "
        "the fact. The later forks are about whether another question follows, and which.",
        "User: What is the capital of Italy?\nAssistant:",
        {
            "max_new_tokens": 12,
            "branch_factor": 2,
            "min_fork_weight": 0.2,
            "entropy_threshold": 0.5,
        },
    ),
    Example(
        "capital.eab",
        "A fact that the model knows",
        "Paris comes with low entropy, so there is no fork before it. All six forks come "
        "after it: does another question follow, and which one?",
        "Question: What is the capital of France?\nAnswer:",
        {"max_new_tokens": 14, "min_fork_weight": 0.1},
    ),
    Example(
        "rare.eab",
        "A rarely seen fact",
        "This capital was rare in the training text: the entropy is high, and syllables of "
        "several cities mix.",
        "The capital of Bolivia is",
        {"max_new_tokens": 8, "branch_factor": 4, "min_fork_weight": 0.1},
    ),
    Example(
        "sum.eab",
        "A sum it half knows",
        "Seven is right and gets 48 %, but eight gets 39 % and six 11 %: the entropy shows "
        "that the model is not sure.",
        "What is three plus four? Three plus four is",
        {"max_new_tokens": 8, "branch_factor": 4, "min_fork_weight": 0.1},
    ),
    Example(
        "count.eab",
        "A choice that must be remembered",
        "Losing or finding is nearly a toss-up, 54 to 46; the number at the end has to "
        "follow from it.",
        "Ben has four apples. He",
        {
            "max_new_tokens": 14,
            "branch_factor": 2,
            "entropy_threshold": 0.5,
            "min_fork_weight": 0.1,
        },
    ),
    Example(
        "job.eab",
        "Five jobs of known probability",
        "In the training text five jobs have 30, 30, 20, 10 and 10 percent (2.17 bits, 1.50 "
        "nats); compare them with the weights.",
        "When I grow up I want to be a",
        {"max_new_tokens": 12, "branch_factor": 6, "min_fork_weight": 0.05},
    ),
    Example(
        "market.eab",
        "A choice that opens other choices",
        "After flour one thing is likely, after milk two, after apples three: the entropy "
        "after the first fork depends on the path.",
        "Grandma went to the market and bought some",
        {"max_new_tokens": 14, "entropy_threshold": 0.5, "min_fork_weight": 0.05},
    ),
    Example(
        "bridge.eab",
        "A story with known odds at every turn",
        "In the training text a cat sits there three times out of four, else a troll; "
        "recorded are 72 to 27. Each leads to turns and an ending of its own.",
        "A little fox came to a bridge. On the bridge sat a",
        {"max_new_tokens": 48, "entropy_threshold": 0.45, "min_fork_weight": 0.05},
    ),
    Example(
        "asked.eab",
        "A story on request",
        "All paths begin as stories do, then diverge at the hero: a dog was asked for, but "
        "only two of the twelve are about one.",
        "User: Tell me a story about a dog.\nAssistant:",
        {
            "temperature": 0.8,
            "entropy_threshold": 1.2,
            "max_new_tokens": 48,
            "min_fork_weight": 0.08,
            "max_paths": 12,
        },
    ),
    Example(
        "long.eab",
        "Twenty paths, up to a hundred tokens each",
        "Sharing saves most while the paths are short: watch the private rows grow.",
        BALL,
        {
            "temperature": 0.8,
            "entropy_threshold": 1.5,
            "max_new_tokens": 100,
            "max_paths": 20,
            "seed": 3,
        },
    ),
    Example(
        "original.eab",
        "The published rule",
        "Policy original: all texts count equally, and at the limit the tree narrows like a "
        "beam search: here all twelve begin with “a big tree”.",
        BALL,
        {
            "temperature": 0.8,
            "entropy_threshold": 1.2,
            "max_new_tokens": 36,
            "max_paths": 12,
            "policy": "original",
        },
    ),
]


STORY = "Once upon a time, there was a little girl named Lily. She"
CACHE_SWEEP: dict[str, Any] = {
    "temperature": 0.8,
    "entropy_threshold": 1.2,
    "max_new_tokens": 64,
    "max_paths": 16,
}


def main() -> None:
    """Write all run files and the catalogue."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", action="store_true", help="record only the sweeps")
    only_sweeps = parser.parse_args().sweeps
    model = load_model()
    if not only_sweeps:
        record_runs(model)
    record_sweeps(model)


def record_sweeps(model: HuggingFaceModel) -> None:
    """Record one run per cache, and one per draft length; the tokens of a sweep must not differ."""
    tree = BranchingConfig(**(COMMON | CACHE_SWEEP))
    _record_sweep(cache_sweep(), bundled_runs.CACHES, model, BALL, tree)
    path = BranchingConfig(max_paths=1, entropy_threshold=20.0, max_new_tokens=120, seed=4)
    _record_sweep(
        draft_length_sweep("model"),
        bundled_runs.DRAFT_LENGTHS,
        model,
        STORY,
        path,
        load_model(EMBEDDED_DRAFT),
    )


def _record_sweep(
    sweep: Sweep,
    folder: Path,
    model: HuggingFaceModel,
    prompt: str,
    config: BranchingConfig,
    draft: HuggingFaceModel | None = None,
) -> None:
    """Write a run file per variant, and print whether the tokens agree."""
    folder.mkdir(parents=True, exist_ok=True)
    events: list[Event] = []
    for event in run_sweep(model, Request(prompt, config), sweep.variants, draft):
        sweep.apply(event)
        events.append(event)
        if isinstance(event, RunEnded):
            record.save(events, bundled_runs.file_of(sweep.current, folder))
            events = []
    print(sweep_sentence(sweep))


def record_runs(model: HuggingFaceModel) -> None:
    """Write the run file of every example, and the catalogue."""
    bundled_runs.FOLDER.mkdir(parents=True, exist_ok=True)
    for example in EXAMPLES:
        events = list(
            generate(model, Request(example.prompt, BranchingConfig(**(COMMON | example.settings))))
        )
        record.save(events, bundled_runs.FOLDER / example.file)
        print(f"{example.file}: {len(events)} events, {len(fold(events).leaves())} leaves")
    catalogue = [{"file": e.file, "title": e.title, "shows": e.shows} for e in EXAMPLES]
    (bundled_runs.FOLDER / "catalogue.json").write_text(
        json.dumps(catalogue, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
