"""The same requests served in three ways: one by one, in static batches, by continuous batching.

The columns of the tables:

- `passes`, a row for each forward pass: `way`, `repeat`, `pass`, its `seconds` and `kv_bytes`
- `served`, a row for each request that a pass served: `way`, `repeat`, `pass`, and the fields of
  `eab.analysis.schedule.RunInPass`, in which `run` is the number of the request, from 0. A repeat
  without such rows served the same as the first.
- `servings`, a row for each repeat of a way: `differing`, the number of requests that got other
  tokens than in the first serving. Logits are rounded differently in another batch, so a draw near
  a boundary may take another token.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from eab.analysis.schedule import RunInPass, Schedule, ScheduledPass
from eab.config import BranchingConfig
from eab.errors import ConfigError
from eab.formatting import counted, human_bytes
from eab.labs.measurement import Lab, Measure, Report, Row, TextTable, Values, measures_table
from eab.timing import (
    MIN_REPEATS,
    NOTHING_YET,
    Timing,
    are_too_few,
    differs,
    ms,
    ratio_words,
    repeats_words,
)

Way = Literal["continuous", "static batches", "one by one"]
WAYS: Final[tuple[Way, ...]] = get_args(Way)
TITLES: Final[dict[Way, str]] = {
    "continuous": "Continuous batching",
    "static batches": "Static batches",
    "one by one": "One by one",
}
MAX_REQUESTS, MAX_NEW_TOKENS, MAX_PATHS, MAX_SLOTS, MAX_REPEATS = 32, 256, 8, 8, 9
MAX_PROMPT: Final = 2000  # characters
NEVER_FORKS: Final = 20.0  # nats


class ServingRequest(NamedTuple):
    """A request: a prompt, and the maximum number of new tokens."""

    prompt: str
    new_tokens: int


def requests_of(rows: Iterable[tuple[str | None, int | None]]) -> tuple[ServingRequest, ...]:
    """The rows of a table of requests. Raises ConfigError if a row is incomplete."""
    requests = []
    for number, (prompt, new_tokens) in enumerate(rows, start=1):
        if prompt is None or new_tokens is None:
            raise ConfigError(
                f"request {number} is incomplete; give a prompt and a number of new tokens, or "
                "delete the row"
            )
        requests.append(ServingRequest(str(prompt), int(new_tokens)))
    return tuple(requests)


def request_name(number: int) -> str:
    """The name of the run of a request; the first has number 0."""
    return f"request {number + 1}"


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests that arrive at the same time, and how they are served."""

    requests: tuple[ServingRequest, ...]
    slots: int = 4  # the most requests in a batch
    repeats: int = MIN_REPEATS  # how often each way is measured
    max_paths: int = 1  # path limit of each request; with 1, no path forks
    seed: int = 1  # the same for all requests

    def __post_init__(self) -> None:
        for what, value, most in (
            ("requests", len(self.requests), MAX_REQUESTS),
            ("slots", self.slots, MAX_SLOTS),
            ("repeats", self.repeats, MAX_REPEATS),
            ("paths", self.max_paths, MAX_PATHS),
        ):
            if not 1 <= value <= most:
                raise ConfigError(f"{value} {what} were given; choose from 1 to {most}")
        for number, asked in enumerate(self.requests, start=1):
            if not asked.prompt.strip() or len(asked.prompt) > MAX_PROMPT:
                raise ConfigError(
                    f"the prompt of request {number} has "
                    f"{counted(len(asked.prompt), 'character')}; "
                    f"write from 1 to {MAX_PROMPT:,}, not only spaces"
                )
            if not 1 <= asked.new_tokens <= MAX_NEW_TOKENS:
                raise ConfigError(
                    f"request {number} asks for {asked.new_tokens} new tokens; "
                    f"choose from 1 to {MAX_NEW_TOKENS}"
                )

    def serves_like(self, other: "Workload") -> bool:
        """Whether the other workload differs at most in its repeats."""
        return replace(self, repeats=other.repeats) == other

    def config(self, request: ServingRequest) -> BranchingConfig:
        """The settings of this request."""
        forks: dict[str, Any] = {} if self.max_paths > 1 else {"entropy_threshold": NEVER_FORKS}
        return BranchingConfig(
            max_new_tokens=request.new_tokens,
            max_paths=self.max_paths,
            temperature=0.8,
            seed=self.seed,
            **forks,
        )

    def groups(self, way: Way) -> Iterator[Sequence[int]]:
        """Request numbers in groups; each group waits until the previous group has ended."""
        numbers = range(len(self.requests))
        size = {"continuous": len(numbers), "static batches": self.slots, "one by one": 1}[way]
        for first in range(0, len(numbers), size):
            yield numbers[first : first + size]


_SHORT: Final = (
    "The capital of France is",
    "My pet is a",
    "Grandma went to the market and bought some",
    "When I grow up I want to be a",
    "Ben has four apples. He",
    "The capital of Italy is",
    "What is three plus four? Three plus four is",
    "User: What is the capital of Italy?\nAssistant:",
)
_STORIES: Final = (
    "The sun was hot, so the children",
    "It was a dark night. The old man walked through the forest and",
    "Anna wanted to bake a cake. First she",
    "A fox and a rabbit were friends. One day the fox",
)


def _asked(*pairs: tuple[str, int]) -> tuple[ServingRequest, ...]:
    return tuple(ServingRequest(*pair) for pair in pairs)


CLASS: Final = "A class: eight short, two long"
PRESETS: Final = {
    CLASS: _asked(
        *((prompt, 16) for prompt in _SHORT[:2]),
        (_STORIES[0], 120),
        *((prompt, 16) for prompt in _SHORT[2:5]),
        (_STORIES[1], 120),
        *((prompt, 16) for prompt in _SHORT[5:]),
    ),
    "Mixed lengths": _asked(
        (_SHORT[0], 16),
        (_STORIES[0], 96),
        (_SHORT[1], 16),
        (_STORIES[1], 48),
        (_STORIES[2], 24),
        (_SHORT[2], 16),
        (_STORIES[3], 72),
        (_SHORT[3], 16),
    ),
    "All equal": _asked(*((prompt, 32) for prompt in (*_STORIES, *reversed(_STORIES)))),
}


_NOTE: Final = (
    "Measured: medians of the repeats, with quartiles in brackets. p50 and p95 are taken over the "
    "requests; times include waiting. A slot-step is one slot in one forward pass."
)


def workload_of(report: Report) -> Workload:
    """What is served; only after the start event."""
    assert report.began is not None
    asked = tuple(ServingRequest(**row) for row in report.began.given)
    return Workload(asked, **report.about)


def pass_rows(
    way: Way, repeat: int, passes: Sequence[ScheduledPass], first: Sequence[ScheduledPass] | None
) -> Iterator[Row]:
    """The rows about a repeat; `first` has the passes of the way's first repeat, if it is over."""
    for number, record in enumerate(passes):
        values: Values = {"way": way, "repeat": repeat, "pass": number}
        yield Row("passes", values | {"seconds": record.seconds, "kv_bytes": record.kv_bytes})
    if first is None or [one.served for one in passes] != [one.served for one in first]:
        for number, record in enumerate(passes):
            for part in record.served:
                values = {"way": way, "repeat": repeat, "pass": number}
                yield Row("served", values | part._asdict())


def schedules(report: Report) -> Mapping[Way, list[Schedule]]:
    """All repeats of each way that has been served."""
    return report.computed(_schedules)


def _schedules(report: Report) -> dict[Way, list[Schedule]]:
    served: dict[tuple[Way, int], dict[int, list[RunInPass]]] = {}
    for row in report.rows("served"):
        part = RunInPass(*(row[name] for name in RunInPass._fields))
        passes = served.setdefault((row["way"], row["repeat"]), {})
        passes.setdefault(row["pass"], []).append(part)
    found: dict[Way, list[Schedule]] = {}
    for (way, repeat), rows in groupby(report.rows("passes"), itemgetter("way", "repeat")):
        parts = served.get((way, repeat)) or served.get((way, 0), {})
        records = (
            ScheduledPass(row["seconds"], row["kv_bytes"], tuple(parts.get(row["pass"], ())))
            for row in rows
        )
        found.setdefault(way, []).append(Schedule(report.about["slots"], tuple(records)))
    return found


def shown(report: Report) -> dict[Way, Schedule]:
    """For each way, its repeat of median length; of two middle repeats, the longer."""
    medians: dict[Way, Schedule] = {}
    for way in WAYS:
        ranked = sorted(schedules(report).get(way, []), key=lambda schedule: schedule.seconds)
        if ranked:
            medians[way] = ranked[len(ranked) // 2]
    return medians


def timings(report: Report, measure: Callable[[Schedule], float]) -> dict[str, Timing]:
    """The value of a measure in each repeat, by way."""
    found = schedules(report)
    return {way: _each(measure)(found[way]) for way in WAYS if way in found}


def total_seconds(schedule: Schedule) -> float:
    """How long all passes took."""
    return schedule.seconds


def _first_token(share: float) -> Callable[[Schedule], float]:
    return lambda schedule: _quantile(schedule.first_token_seconds(), share)


def _output_token(share: float) -> Callable[[Schedule], float]:
    return lambda schedule: _quantile(schedule.output_token_seconds(), share)


def _quantile(seconds: Mapping[int, float], share: float) -> float:
    return float(np.quantile([*seconds.values()], share)) if seconds else 0.0


def _rate(schedule: Schedule) -> float:
    return schedule.new_tokens / schedule.seconds if schedule.seconds else 0.0


def _pass_tokens(schedule: Schedule) -> float:
    passes = schedule.passes
    return sum(part.tokens for part in passes) / len(passes) if passes else 0.0


_SECONDS, _SHARE = "{:.2f}".format, "{:.0%}".format


def _each(measure: Callable[[Schedule], float]) -> Callable[[list[Schedule]], Timing]:
    return lambda repeats: Timing(tuple(map(measure, repeats)))


_MEASURES: Final = (
    Measure("seconds for all", _each(total_seconds), _SECONDS, True),
    Measure("new tokens per second", _each(_rate), "{:.0f}".format),
    Measure("time to first token, p50 (s)", _each(_first_token(0.5)), _SECONDS, True),
    Measure("time to first token, p95 (s)", _each(_first_token(0.95)), _SECONDS, True),
    Measure("time per output token, p50 (ms)", _each(_output_token(0.5)), ms, True),
    Measure("time per output token, p95 (ms)", _each(_output_token(0.95)), ms, True),
    Measure("forward passes", _each(lambda one: len(one.passes)), "{:,.0f}".format),
    Measure("tokens per forward pass, mean", _each(_pass_tokens), "{:.1f}".format),
    Measure("slot-steps idle", _each(lambda one: one.idle_share), _SHARE),
    Measure("idle while a request waits", _each(lambda one: one.awaited_idle_share), _SHARE),
    Measure("most KV bytes held", _each(lambda one: one.peak_kv_bytes), human_bytes),
)


def batching_table(report: Report) -> TextTable:
    """One row per measure, with a cell per way."""
    found = schedules(report)
    return measures_table({way: found[way] for way in WAYS if way in found}, _MEASURES)


def batching_answer(report: Report) -> str:
    """How long each way took, and how long requests waited."""
    drawn, taken = shown(report), timings(report, total_seconds)
    if "continuous" not in drawn:
        return NOTHING_YET
    workload, ours, words = workload_of(report), taken["continuous"], []
    for way, schedule in drawn.items():
        passes = f"{len(schedule.passes):,}"
        if way == "continuous":
            words.append(f"continuous batching took {passes} passes and {ours.median:.2f} s")
        else:
            beside = _beside(taken[way], ours)
            words.append(f"{way} {passes} and {taken[way].median:.2f} s{beside}")
    return (
        f"{_waiting(report)} {counted(len(workload.requests), 'request')} in "
        f"{counted(workload.slots, 'slot')}: {', '.join(words)}; {repeats_words(taken.values())}."
    ).strip()


def _beside(theirs: Timing, ours: Timing) -> str:
    if are_too_few(theirs, ours):
        return ""
    return f" ({ratio_words(theirs, ours)}{' as long' if differs(theirs, ours) else ''})"


def _waiting(report: Report) -> str:
    last = timings(report, _first_token(1.0))
    if "static batches" not in last or not differs(last["continuous"], last["static batches"]):
        return ""
    ours, theirs = last["continuous"].median, last["static batches"].median
    return (
        f"{'No:' if ours < theirs else 'Here it does:'} the last request got its first token after "
        f"{ours:.2f} s with continuous batching, and after {theirs:.2f} s with static batches."
    )


def agreement_sentence(report: Report) -> str:
    """Whether all ways wrote the same texts."""
    servings = report.rows("servings")
    if not servings:
        return NOTHING_YET
    count, differing = len(workload_of(report).requests), max(row["differing"] for row in servings)
    if not differing:
        return "All ways wrote the same texts, token by token."
    return (
        f"{count - differing} of {counted(count, 'text')} are the same in all repeats, token by "
        "token. Rounding of the logits depends on the batch and can change a token."
    )


def requests_table(report: Report) -> pd.DataFrame:
    """One row per request and way, for the repeats that are drawn."""
    rows, requests = [], workload_of(report).requests
    for way, schedule in shown(report).items():
        first, pace = schedule.first_token_seconds(), schedule.output_token_seconds()
        for run, parts in sorted(schedule.by_run.items()):
            rows.append(
                {
                    "way": way,
                    "request": run + 1,
                    "prompt": requests[run].prompt,
                    "slot": parts[0][1].slot + 1,
                    "new_tokens": sum(part.new_tokens for _, part in parts),
                    "first_token_s": first.get(run),
                    "ended_s": schedule.ends[parts[-1][0]],
                    "per_output_token_s": pace.get(run),
                }
            )
    return pd.DataFrame(rows)


BATCHING: Final = Lab(
    "batching", {"seconds": "s", "kv_bytes": "bytes"}, batching_answer, batching_table, _NOTE
)
