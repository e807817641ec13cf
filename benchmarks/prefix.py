"""What the prefix cache saves: runs of one prompt, a sweep, and runs with nothing in common.

    python benchmarks/prefix.py --quick --json prefix.json

Prompts have 300 tokens; runs have 16 new tokens and at most 4 paths. Each round serves a job
without and with the cache, always with a new scheduler and an empty cache. Figures are medians with
quartiles; ratios are ratios of medians. "First tokens" is the time until 95% of the runs have one.
"KV memory" is the most that the runs and the cache hold together after any pass.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import torch
from published import (
    Placement,
    clock_of,
    command_line,
    markdown_table,
    mib,
    offer_processor_time,
    publish,
    where,
)
from shapes import engine_model, plain_model

from eab.caches.prefixed_tree import prefix_cache
from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.engine.scheduler import Scheduler
from eab.events import TokensAppended
from eab.figures.timings import with_spread
from eab.models.base import LanguageModel
from eab.models.loading import load_model
from eab.timing import MIN_REPEATS, Clock, Timing, take_turns

PROMPT_TOKENS: Final = 300
STUDENTS: Final = 30
THRESHOLDS: Final = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
CONFIG: Final = BranchingConfig(max_new_tokens=16, max_paths=4)
REPEATS: Final = 15


@dataclass
class Job:
    """Requests that are submitted together, with and without a prefix cache."""

    model: LanguageModel
    requests: Sequence[Request]
    clock: Clock
    first_tokens: dict[bool, list[float]] = field(default_factory=lambda: {True: [], False: []})
    most_bytes: dict[bool, int] = field(default_factory=dict)

    def serve(self, reuse: bool) -> float:
        """Serve all requests, and return the seconds."""
        prefixes = prefix_cache(self.model.kv_shape) if reuse else None
        scheduler = Scheduler(self.model, prefixes=prefixes)
        start, waits, most = self.clock(), list[float](), 0
        waiting = {scheduler.submit(one, owner=str(n)) for n, one in enumerate(self.requests)}
        while scheduler.busy:
            for handle in scheduler.step():
                new = handle.new_events()
                if handle in waiting and any(isinstance(one, TokensAppended) for one in new):
                    waiting.discard(handle)
                    waits.append(self.clock() - start)
            most = max(most, scheduler.kv_held + scheduler.prefix_bytes)
        self.first_tokens[reuse].append(waits[int(0.95 * len(waits))])
        self.most_bytes[reuse] = most
        return self.clock() - start


def prompt(seed: int) -> tuple[int, ...]:
    """A prompt that begins differently for each seed."""
    drawn = torch.randint(10, 400, (PROMPT_TOKENS,), generator=torch.Generator().manual_seed(seed))
    return tuple(drawn.tolist())


def requests(
    count: int, alike: bool, thresholds: Sequence[float] = (CONFIG.entropy_threshold,)
) -> list[Request]:
    """`count` seeds for each threshold, all with the same prompt or with one prompt per seed."""
    return [
        Request(
            "",
            replace(CONFIG, seed=seed, entropy_threshold=threshold),
            token_ids=prompt(0 if alike else seed),
        )
        for seed in range(count)
        for threshold in thresholds
    ]


def jobs(small: LanguageModel, large: LanguageModel, clock: Clock) -> dict[str, Job]:
    same, sweep = requests(STUDENTS, alike=True), requests(4, alike=True, thresholds=THRESHOLDS)
    return {
        "30 runs of one prompt": Job(small, same, clock),
        "30 runs of one prompt, 135M": Job(large, same, clock),
        "sweep, 8 thresholds x 4 seeds": Job(small, sweep, clock),
        "one run alone": Job(small, requests(1, alike=True), clock),
        "30 runs of 30 prompts": Job(small, requests(STUDENTS, alike=False), clock),
    }


def measure(job: Job, repeats: int) -> tuple[Timing, Timing]:
    """The timings without and with the prefix cache."""
    ways: dict[str, Callable[[], float]] = {
        str(reuse): partial(job.serve, reuse) for reuse in (False, True)
    }
    found = take_turns(ways, repeats)
    return found["False"], found["True"]


def ratios(job: dict[str, Job], found: dict[str, tuple[Timing, Timing]]) -> dict[str, float]:
    def without_over_with(name: str) -> float:
        without, reused = found[name]
        return without.median / reused.median

    same = job["30 runs of one prompt"]
    first = [Timing(tuple(same.first_tokens[reuse])).median for reuse in (False, True)]
    return {
        "ttft_p95_without_over_with_30_same": first[0] / first[1],
        "seconds_without_over_with_30_same": without_over_with("30 runs of one prompt"),
        "seconds_without_over_with_30_same_135m": without_over_with("30 runs of one prompt, 135M"),
        "sweep_without_over_with": without_over_with("sweep, 8 thresholds x 4 seeds"),
        "kv_bytes_with_over_without_30_same": same.most_bytes[True] / same.most_bytes[False],
        "alone_with_over_without": 1 / without_over_with("one run alone"),
        "thirty_different_with_over_without": 1 / without_over_with("30 runs of 30 prompts"),
    }


def table(job: dict[str, Job], found: dict[str, tuple[Timing, Timing]]) -> str:
    rows = []
    for name, (without, reused) in found.items():
        cells = [with_spread(timing, lambda value: f"{value:.2f}") for timing in (without, reused)]
        first = [
            with_spread(Timing(tuple(job[name].first_tokens[reuse])), lambda value: f"{value:.2f}")
            for reuse in (False, True)
        ]
        memory = [mib(job[name].most_bytes[reuse]) for reuse in (False, True)]
        rows.append([name, *cells, f"{without.median / reused.median:.2f}", *first, *memory])
    heads = ["", "seconds without", "with", "ratio", "first tokens without", "with"]
    return markdown_table([*heads, "KV memory without", "with"], rows)


def main() -> None:
    parser = command_line(__doc__, quick=f"{MIN_REPEATS} rounds instead of {REPEATS}")
    offer_processor_time(parser)
    options = parser.parse_args()
    clock = clock_of(parser, options)
    torch.set_num_threads(options.threads)
    placement = Placement("cpu", torch.float32)
    large = engine_model(plain_model("135m", placement), "135m")
    job = jobs(load_model("embedded"), large, clock)
    repeats = MIN_REPEATS if options.quick else REPEATS
    found = {
        name: measure(one, repeats if one.model is not large else 3) for name, one in job.items()
    }
    seconds = {name: [timing.seconds for timing in pair] for name, pair in found.items()}
    result = {"seconds": seconds, "ratios": ratios(job, found)}
    publish(options, where(str(placement)), table(job, found), result, mark="prefix")


if __name__ == "__main__":
    main()
