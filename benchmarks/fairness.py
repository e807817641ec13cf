"""Thirty small visitors and a greedy one: how much longer they wait because of it.

    python benchmarks/fairness.py --json fairness.json

One scheduler serves all visitors, without a page. Each small visitor makes a few short runs one
after another. The greedy visitor always has as many runs of the largest size as a public server
allows (app/server/rules.py). Every round measures the small visitors without the greedy one and
with it: the 95th percentile of the seconds to the first token, and to the end of the run. The
ratios, with over without, are medians over rounds. `fair_share_p95` is the larger of the two.

With --newcomer, another visitor arrives while forty greedy visitors each have one of the largest
runs. `newcomer_ttft_over_5s` is its median time to the first token over 5 s, with a fixed
threshold. `newcomer_preset_ttft_over_5s` is the same for the preset that the page starts with,
whose threshold has to be found first by a probe of up to 24 tokens.

With --visitors, several visitors each request one answer at the same time, with the page's starting
settings. It measures how fast their texts grow, by the number of visitors.

--model smollm2 uses the chat model. With --newcomer, --kv-mib limits the KV memory of all runs.
"""

import argparse
import gc
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import torch
from chat_prompts import OPENINGS, QUESTIONS
from published import (
    clock_of,
    command_line,
    markdown_table,
    offer_processor_time,
    publish,
    ratio_table,
    where,
)

from app.server.rules import PUBLIC
from eab.branching.presets import START
from eab.config import BranchingConfig
from eab.engine.fairness import NewcomersFirst
from eab.engine.handle import Handle
from eab.engine.probe import PROBED
from eab.engine.request import Request
from eab.engine.scheduler import KV_LIMIT_MIB, Scheduler
from eab.events import TokensAppended
from eab.models.base import LanguageModel
from eab.models.loading import load_model
from eab.timing import MIN_REPEATS, Timing

VISITORS: Final = 30
RUNS_EACH: Final = 3
SMALL: Final = BranchingConfig(min_fork_weight=0.03, max_paths=4, max_new_tokens=24)
# Prompt and new tokens together fill the embedded model's context of 512 tokens.
GREEDY_PROMPT: Final = OPENINGS[0] + " little girl" * 120
GREEDY: Final = BranchingConfig(
    entropy_threshold=0.0,
    min_fork_weight=0.0,
    max_paths=PUBLIC.max_paths,
    max_new_tokens=PUBLIC.max_new_tokens,
    kv_limit_mib=PUBLIC.kv_limit_mib,
)
WARM_UP_STEPS: Final = 12  # until the greedy visitor's trees are wide
CROWDS: Final = (1, 2, 4, 8, 15, 30)  # visitors who ask at the same time
# The settings of the newcomers, by the name of their ratio.
NEWCOMERS: Final = {"newcomer_ttft_over_5s": SMALL, "newcomer_preset_ttft_over_5s": START}
CROWD: Final = 40  # greedy visitors, each with one run
CROWD_STEPS: Final = 80  # until most of their trees are wide
SOON: Final = 5.0  # seconds within which a newcomer should see something

Clock = Callable[[], float]


@dataclass
class Small:
    """A run of a small visitor, with its times as clock readings."""

    visitor: int
    handle: Handle
    submitted: float
    first_token: float = 0.0
    ended: float = 0.0


class Service:
    """One scheduler with its visitors."""

    def __init__(self, model: LanguageModel, clock: Clock) -> None:
        self._scheduler, self._clock = Scheduler(model, rule=NewcomersFirst()), clock
        self._greedy: list[Handle] = []
        self._seed = 0

    def small_runs(self, beside_greedy: bool) -> list[Small]:
        """Serve all runs of all small visitors, and return them."""
        if beside_greedy:
            for _ in range(WARM_UP_STEPS):
                self._step(greedy=True)
        waiting = [self._submit(visitor) for visitor in range(VISITORS)]
        left, ended = dict.fromkeys(range(VISITORS), RUNS_EACH - 1), []
        while waiting:
            self._step(beside_greedy)
            now = self._clock()
            for run in waiting[:]:
                has_token = appended(run.handle)
                if has_token and not run.first_token:
                    run.first_token = now
                if run.handle.ended:
                    run.ended = now
                    ended.append(run)
                    waiting.remove(run)
                    if left[run.visitor]:
                        left[run.visitor] -= 1
                        waiting.append(self._submit(run.visitor))
        self._scheduler.close()
        return ended

    def _step(self, greedy: bool) -> None:
        self._greedy = [handle for handle in self._greedy if not handle.ended]
        while greedy and len(self._greedy) < PUBLIC.runs_per_visitor:
            self._greedy.append(self._ask(Request(GREEDY_PROMPT, GREEDY), "greedy"))
        self._scheduler.step()
        for handle in self._greedy:
            assert handle.error is None, handle.error
            handle.new_events()

    def _submit(self, visitor: int) -> Small:
        handle = self._ask(Request(OPENINGS[visitor % len(OPENINGS)], SMALL), str(visitor))
        return Small(visitor, handle, self._clock())

    def _ask(self, request: Request, owner: str) -> Handle:
        self._seed += 1
        config = replace(request.config, seed=self._seed)
        return self._scheduler.submit(replace(request, config=config), owner=owner)


def appended(handle: Handle) -> bool:
    """Whether the new events of a run include a token."""
    return any(isinstance(event, TokensAppended) for event in handle.new_events())


def p95(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=20)[-1]


def measure(model: LanguageModel, beside_greedy: bool, clock: Clock) -> tuple[float, float]:
    """The small visitors' 95th percentiles: seconds to the first token, and to the run's end."""
    runs = Service(model, clock).small_runs(beside_greedy)
    assert len(runs) == VISITORS * RUNS_EACH
    return (
        p95([run.first_token - run.submitted for run in runs]),
        p95([run.ended - run.submitted for run in runs]),
    )


def newcomer_seconds(
    model: LanguageModel, clock: Clock, seed: int, kv_mib: float
) -> dict[str, float]:
    """Seconds to the first token of each newcomer, while the largest runs take all slots."""
    scheduler = Scheduler(model, rule=NewcomersFirst(), kv_limit_mib=kv_mib)

    def ask(number: int) -> Handle:
        request = Request(GREEDY_PROMPT, replace(GREEDY, seed=CROWD * seed + number))
        return scheduler.submit(request, owner=f"greedy {number}")

    crowd = [ask(number) for number in range(CROWD)]
    for _ in range(CROWD_STEPS):
        scheduler.step()
        for number, handle in enumerate(crowd):
            assert handle.error is None, handle.error
            crowd[number] = ask(number) if handle.ended else handle
    seconds = {}
    for name, config in NEWCOMERS.items():
        PROBED.pop(model, None)  # so that the prompt counts as new
        asked = Request(QUESTIONS[seed % len(QUESTIONS)], replace(config, seed=seed))
        new, began = scheduler.submit(asked, owner=name), clock()
        while not appended(new):
            scheduler.step()
        seconds[name] = clock() - began
        new.stop()
    scheduler.close()
    return seconds


def publish_newcomer(options: argparse.Namespace, model: LanguageModel, clock: Clock) -> None:
    """Measure newcomers among greedy visitors, and publish the result."""
    seeds = range(3 if options.quick else 9)
    found = [newcomer_seconds(model, clock, seed, options.kv_mib) for seed in seeds]
    waited = {name: [times[name] for times in found] for name in NEWCOMERS}
    lines = [f"Seconds to the first token of a newcomer beside {CROWD} greedy visitors:", ""]
    lines += [
        f"- `{name}`: {statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f})"
        for name, times in waited.items()
    ]
    ratios = {name: statistics.median(times) / SOON for name, times in waited.items()}
    origin = where(f"{model.card.name}, {model.card.dtype} on cpu")
    publish(options, origin, "\n".join(lines) + "\n", {"seconds": waited, "ratios": ratios})


def answer_times(model: LanguageModel, clock: Clock, visitors: int) -> tuple[float, float]:
    """Let `visitors` visitors ask at the same time. Returns the seconds until all of them have a
    first token, and the median tokens per second by which a text grows.
    """
    scheduler = Scheduler(model, rule=NewcomersFirst())
    began, first, ends = clock(), dict[Handle, float](), dict[Handle, float]()
    lengths = dict.fromkeys(
        [
            scheduler.submit(
                Request(QUESTIONS[number % len(QUESTIONS)], replace(START, seed=number)),
                owner=str(number),
            )
            for number in range(visitors)
        ],
        0,
    )
    while scheduler.busy:
        scheduler.step()
        for handle in lengths:
            new = [event for event in handle.new_events() if isinstance(event, TokensAppended)]
            if new:
                first.setdefault(handle, clock() - began)
                lengths[handle] = max(event.step for event in new) + 1
            if handle.ended and handle not in ends:
                assert handle.error is None, handle.error
                ends[handle] = clock() - began
    rates = [lengths[handle] / ends[handle] for handle in lengths]
    return max(first.values()), statistics.median(rates)


def publish_visitors(options: argparse.Namespace, model: LanguageModel, clock: Clock) -> None:
    """Measure answers for each number of visitors, and publish the result."""
    found = {
        visitors: [
            answer_times(model, clock, visitors) for _ in range(1 if options.quick else MIN_REPEATS)
        ]
        for visitors in CROWDS
    }
    rows = []
    for visitors, times in found.items():
        waited, rate = (Timing(tuple(column)) for column in zip(*times, strict=True))
        texts = f"{rate.median:.1f} ({rate.low:.1f} to {rate.high:.1f})"
        last = f"{waited.median:.2f} ({waited.low:.2f} to {waited.high:.2f})"
        rows.append([visitors, last, texts])
    text = markdown_table(["visitors", "last first token, s", "tokens per second of a text"], rows)
    origin = where(f"{model.card.name}, {model.card.dtype} on cpu")
    publish(options, origin, text, {"seconds_and_rates": found, "ratios": {}})


def main() -> None:
    parser = command_line(__doc__, quick="three rounds instead of nine")
    parser.add_argument("--newcomer", action="store_true", help="measure a newcomer instead")
    parser.add_argument(
        "--visitors", action="store_true", help="measure answers for each number of visitors"
    )
    parser.add_argument("--model", default="embedded", help="embedded or smollm2")
    parser.add_argument(
        "--kv-mib",
        type=float,
        default=KV_LIMIT_MIB,
        help="KV memory limit of all runs in MiB, with --newcomer",
    )
    offer_processor_time(parser)
    options = parser.parse_args()
    clock = clock_of(parser, options)
    torch.set_num_threads(options.threads)
    model = load_model(options.model, device="cpu")
    gc.collect()
    gc.freeze()  # as the server does, because a full collection takes as long as four passes
    if options.visitors or options.newcomer:
        answer_times(model, clock, 2)  # the first passes of a process are slow
        return (publish_visitors if options.visitors else publish_newcomer)(options, model, clock)
    measure(model, True, clock)
    rounds = [
        [measure(model, beside_greedy, clock) for beside_greedy in (False, True)]
        for _ in range(3 if options.quick else 9)
    ]
    found = {
        name: [(beside[index], alone[index]) for alone, beside in rounds]
        for index, name in enumerate(("first_token", "total"))
    }
    ratios = {
        f"fair_share_p95_{name}": statistics.median(beside / alone for beside, alone in pairs)
        for name, pairs in found.items()
    }
    ratios["fair_share_p95"] = max(ratios.values())
    result = {"seconds": found, "ratios": ratios}
    publish(
        options,
        where("float32 on cpu"),
        ratio_table(["p95", "beside the greedy one, s", "alone, s"], found),
        result,
    )


if __name__ == "__main__":
    main()
