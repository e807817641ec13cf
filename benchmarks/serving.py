"""Serving many runs of one model: in turns, in static batches, and by the scheduler (continuous
batching).

    python benchmarks/serving.py --quick --json serving.json

Every round measures all ways, one after the other, with the same requests. The ratios are medians
over rounds of the seconds of two ways in the same round; their spread is the smallest and the
largest of them. In turns means one step of each run after the other, each with a forward pass of
its own. A static batch takes new runs only once all of its runs have ended.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from published import command_line, publish, where

from eab.config import BranchingConfig
from eab.engine.loop import generate
from eab.engine.request import Request
from eab.engine.scheduler import Scheduler
from eab.events import Pause, TokenAppended
from eab.models.base import LanguageModel
from eab.models.loading import load_model

PROMPTS = (
    "Once upon a time, there was a",
    "The cat sat on the",
    "One day, a girl named",
    "He opened the box and",
)
STATIC_BATCH = 8  # runs
MIXED_LENGTHS = (8, 16, 32, 256, 8, 24, 64, 16)  # tokens; a long one in each batch of eight
Way = Callable[[LanguageModel, Sequence[Request]], None]


def requests(count: int, paths: int, new_tokens: Sequence[int]) -> list[Request]:
    """`count` requests, each with its own seed; prompts and lengths are repeated in order."""
    config = BranchingConfig(min_fork_weight=0.03, max_paths=paths)
    return [
        Request(
            PROMPTS[seed % len(PROMPTS)],
            replace(config, seed=seed, max_new_tokens=new_tokens[seed % len(new_tokens)]),
        )
        for seed in range(count)
    ]


def in_turns(model: LanguageModel, asked: Sequence[Request]) -> None:
    """One step of each run in turn, until all have ended."""
    runs = [generate(model, request) for request in asked]
    while runs:
        runs = [run for run in runs if any(isinstance(event, Pause) for event in run)]


def in_static_batches(model: LanguageModel, asked: Sequence[Request]) -> None:
    """A batch starts when the one before has ended."""
    for first in range(0, len(asked), STATIC_BATCH):
        continuous(model, asked[first : first + STATIC_BATCH])


def continuous(model: LanguageModel, asked: Sequence[Request]) -> None:
    """All are submitted at once; the scheduler serves as many as a static batch holds, or more."""
    _serve(Scheduler(model), asked)


def continuous_eight(model: LanguageModel, asked: Sequence[Request]) -> None:
    """The same with as many runs at a time as a static batch holds."""
    _serve(Scheduler(model, max_running=STATIC_BATCH), asked)


def _serve(scheduler: Scheduler, asked: Sequence[Request]) -> None:
    for number, request in enumerate(asked):
        scheduler.submit(request, owner=str(number))
    while scheduler.busy:
        scheduler.step()


# Name of the ratio: the slower way, the faster way, and the requests.
RATIOS: dict[str, tuple[Way, Way, Callable[[], list[Request]]]] = {
    "turns_over_batched_8": (in_turns, continuous, lambda: requests(8, 16, [40])),
    "turns_over_batched_30": (in_turns, continuous, lambda: requests(30, 8, [40])),
    "static_over_continuous": (
        in_static_batches,
        continuous_eight,
        lambda: requests(24, 2, MIXED_LENGTHS),
    ),
    "turns_over_batched_1": (in_turns, continuous, lambda: requests(1, 16, [40])),
}


def seconds(way: Way, model: LanguageModel, asked: Sequence[Request]) -> float:
    """Wall time of a way."""
    start = time.perf_counter()
    way(model, asked)
    return time.perf_counter() - start


def first_tokens(model: LanguageModel, asked: Sequence[Request]) -> list[float]:
    """Seconds from the submission of all to the first token of each."""
    scheduler, start = Scheduler(model), time.perf_counter()
    handles = [scheduler.submit(request, owner=str(number)) for number, request in enumerate(asked)]
    found: dict[int, float] = {}
    while scheduler.busy:
        scheduler.step()
        for number, handle in enumerate(handles):
            if any(isinstance(event, TokenAppended) for event in handle.new_events()):
                found.setdefault(number, time.perf_counter() - start)
    return list(found.values())


def measure(model: LanguageModel, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """The seconds of both ways of each ratio, in interleaved rounds."""
    for way in (in_turns, continuous):
        way(model, requests(2, 8, [6]))  # the first passes of a process are slow
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in RATIOS}
    for _ in range(rounds):
        for name, (slow, fast, asked) in RATIOS.items():
            found[name].append((seconds(slow, model, asked()), seconds(fast, model, asked())))
    return found


def table(found: dict[str, list[tuple[float, float]]]) -> str:
    """One row per ratio, as Markdown."""
    rows = ["| | seconds | against seconds | ratio | spread |", "|---|---|---|---|---|"]
    for name, pairs in found.items():
        slow, fast = (statistics.median(times) for times in zip(*pairs, strict=True))
        ratios = [one / other for one, other in pairs]
        rows.append(
            f"| {name} | {slow:.2f} | {fast:.2f} | {statistics.median(ratios):.2f} "
            f"| {min(ratios):.2f} to {max(ratios):.2f} |"
        )
    return "\n".join(rows) + "\n"


def main() -> None:
    """Command line."""
    parser = command_line(__doc__, quick="three rounds instead of nine")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = load_model("embedded", device="cpu", dtype="float32")
    found = measure(model, 3 if options.quick else 9)
    waits = sorted(first_tokens(model, requests(30, 8, [40])))
    p50, p95 = statistics.median(waits), waits[int(0.95 * len(waits))]
    text = table(found) + (
        f"\nThirty runs at once: the first token after {p50:.2f} s (median), {p95:.2f} s (p95).\n"
    )
    ratios = {
        name: statistics.median(slow / fast for slow, fast in pairs)
        for name, pairs in found.items()
    }
    result = {"seconds": found, "first_token_seconds": {"p50": p50, "p95": p95}, "ratios": ratios}
    publish(options, where("float32 on cpu"), text, result)


if __name__ == "__main__":
    main()
