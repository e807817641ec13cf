"""Many runs on one engine: one step of each run in turn, against one forward pass per step for all
of them.

    python benchmarks/class.py

Medians over rounds; in each round both ways are measured, one after the other, with the embedded
model and the settings of the page. `differ` counts the runs whose tokens differ from those of the
same run alone: in a larger batch sums are rounded in another order.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from rich.console import Console
from rich.table import Table

from eab.config import BranchingConfig
from eab.engine.build import build
from eab.engine.generation import Generation
from eab.engine.loop import step
from eab.engine.request import Request
from eab.events import Event, TokenAppended
from eab.models.base import LanguageModel
from eab.models.loading import load_model

PROMPTS = (
    "Once upon a time, there was a",
    "The cat sat on the",
    "One day, a girl named",
    "He opened the box and",
)
CLASSES = (1, 8, 30)
Tokens = list[list[int]]
Way = Callable[[LanguageModel, Sequence[Generation]], Tokens]


def generations(model: LanguageModel, count: int, new_tokens: int) -> list[Generation]:
    """`count` runs before their first step; each has its own seed."""
    made = []
    for seed in range(count):
        prompt = PROMPTS[seed % len(PROMPTS)]
        config = BranchingConfig(
            seed=seed, min_fork_weight=0.03, max_paths=16, max_new_tokens=new_tokens
        )
        made.append(build(model, Request(prompt, config), config.entropy_threshold))
    return made


def in_turns(model: LanguageModel, runs: Sequence[Generation]) -> Tokens:
    """One step of each run in turn, until all have ended."""
    tokens: Tokens = [[] for _ in runs]
    while any(run.live for run in runs):
        for number, run in enumerate(runs):
            if run.live:
                tokens[number] += _tokens(step(model, [run])[0])
    return tokens


def in_one_pass(model: LanguageModel, runs: Sequence[Generation]) -> Tokens:
    """One forward pass per step for all runs that have not ended."""
    tokens: Tokens = [[] for _ in runs]
    while live := [number for number, run in enumerate(runs) if run.live]:
        for number, events in zip(
            live, step(model, [runs[number] for number in live]), strict=True
        ):
            tokens[number] += _tokens(events)
    return tokens


def _tokens(events: Sequence[Event]) -> list[int]:
    return [event.token for event in events if isinstance(event, TokenAppended)]


def timed(way: Way, model: LanguageModel, count: int, new_tokens: int) -> tuple[float, Tokens]:
    """Seconds, and the tokens of each run."""
    runs = generations(model, count, new_tokens)
    start = time.perf_counter()
    tokens = way(model, runs)
    return time.perf_counter() - start, tokens


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="the app leaves one core for the page"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--dtype", default="auto")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model = load_model("embedded", dtype=given.dtype)
    timed(in_turns, model, 1, given.new_tokens)
    table = Table(
        "runs",
        "in turns",
        "in one pass",
        "ratio",
        "differ",
        title=f"{model.card.dtype}, {model.card.device}",
    )
    for count in CLASSES:
        turns, passes = [], []
        for _ in range(given.rounds):
            seconds, alone = timed(in_turns, model, count, given.new_tokens)
            turns.append(seconds)
            seconds, together = timed(in_one_pass, model, count, given.new_tokens)
            passes.append(seconds)
        differ = sum(one != other for one, other in zip(alone, together, strict=True))
        first, second = statistics.median(turns), statistics.median(passes)
        table.add_row(
            str(count),
            f"{first:.2f} s",
            f"{second:.2f} s",
            f"{first / second:.2f}",
            f"{differ} of {count}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
