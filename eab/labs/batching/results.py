"""The same requests served in three ways: one by one, in static batches, by continuous batching."""

import gzip
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from eab.analysis.schedule import Schedule, ScheduledPass
from eab.config import BranchingConfig
from eab.errors import ConfigError
from eab.events import Event, Progressed, RunEnded
from eab.formatting import counted
from eab.record import report as reports
from eab.run import RunFold, RunState
from eab.timing import MIN_REPEATS, Timing

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


@dataclass(frozen=True, slots=True)
class ServingBegan(reports.Began):
    """The start of a measurement."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class WayServed:
    """All requests served once in one way."""

    way: Way
    passes: tuple[ScheduledPass, ...]  # what each forward pass served
    # How many requests got other tokens than in the first serving. Logits are rounded differently
    # in another batch, so a draw near a boundary may take another token.
    differing: int


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """An event of one request in the first serving."""

    number: int  # request number, from 0
    event: Event


_InFile: TypeAlias = ServingBegan | WayServed | RunEnded
BatchingEvent: TypeAlias = _InFile | Progressed | RequestEvent


class BatchingComparison(reports.Report[ServingBegan, WayServed]):
    """All servings so far (the points), and the runs of the first one."""

    beginning = ServingBegan
    point = "serving"

    def __init__(self) -> None:
        super().__init__()
        self._schedules: dict[Way, list[Schedule]] = {}
        self._folds: dict[int, RunFold] = {}

    def apply(self, event: BatchingEvent) -> None:
        """Add one event."""
        if isinstance(event, RequestEvent):
            self._folds.setdefault(event.number, RunFold()).apply(event.event)
            return
        super().apply(event)
        if isinstance(event, WayServed):
            schedule = Schedule(self.workload.slots, event.passes)
            self._schedules.setdefault(event.way, []).append(schedule)

    @property
    def workload(self) -> Workload:
        """The workload that is served; only after the start event."""
        assert self.began is not None
        return self.began.workload

    @property
    def runs(self) -> list[RunState]:
        """The run of each request, in order; empty if the runs were not kept."""
        folds = [self._folds[number] for number in sorted(self._folds)]
        return [fold.run for fold in folds if fold.run is not None]

    @property
    def differing(self) -> int:
        """The most requests in any serving whose tokens differ from the first serving."""
        return max((serving.differing for serving in self.points), default=0)

    def schedules(self, way: Way) -> list[Schedule]:
        """All repeats of this way."""
        return [*self._schedules.get(way, [])]

    def shown(self) -> dict[Way, Schedule]:
        """For each way, its repeat of median length; of two middle repeats, the longer."""
        medians: dict[Way, Schedule] = {}
        for way in WAYS:
            ranked = sorted(self.schedules(way), key=lambda schedule: schedule.seconds)
            if ranked:
                medians[way] = ranked[len(ranked) // 2]
        return medians

    def timing(self, way: Way, measure: Callable[[Schedule], float]) -> Timing:
        """The value of a measure in each repeat of a way."""
        return Timing(tuple(measure(schedule) for schedule in self.schedules(way)))


_FORMAT: Final = reports.ReportFormat(BatchingComparison, "eab-batching", 1, _InFile)
load = _FORMAT.load


def dumps(comparison: BatchingComparison) -> bytes:
    """The measurement as gzipped JSON without the runs; the same events give the same bytes."""
    return gzip.compress(_FORMAT.dumps(comparison).encode("ascii"), mtime=0)
