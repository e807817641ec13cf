"""What the BMC measurements found: frozen points, a report that collects them, and its file. Pure
Python.

All seconds and bytes are measured where the report was made; a prediction is named so.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

import cattrs
from cattrs.strategies import configure_tagged_union

from eab.caches.growth import Calibration, Workload, best_r
from eab.errors import RecordError
from eab.events import Progressed, RunEnded

Experiment = Literal["lengths", "growth", "rejection", "sizes", "memory"]
EXPERIMENTS: Final[tuple[Experiment, ...]] = get_args(Experiment)
_FORMAT: Final = {"format": "eab-bmc", "version": 1}


@dataclass(frozen=True, slots=True)
class Began:
    """Which experiment, with which model, where. machine: processor or GPU, threads, versions."""

    experiment: Experiment
    model: str
    dtype: str
    row_bytes: int
    machine: str


@dataclass(frozen=True, slots=True)
class LengthTimed:
    """One step at r = 1 with `rows` rows in use: seconds to allocate and copy, of attention in all
    layers, and of the whole step with the model (None beyond the model's context)."""

    rows: int
    growth: float
    attention: float
    step: float | None


@dataclass(frozen=True, slots=True)
class RTimed:
    """The KV part of writing `work.rows` rows at one r: seconds of the growths and of the rest, and
    the exact counts.

    spare: the part of `rest` that spare rows add, found by reading each pass once with and once
    without them.
    """

    work: Workload
    r: int
    padded: bool
    growth: float
    rest: float
    spare: float
    growths: int
    rows_copied: int

    @property
    def overhead(self) -> float:
        """What BMC balances: seconds of the growths, and of visiting spare rows."""
        return self.growth + self.spare

    @property
    def seconds(self) -> float:
        """KV update and attention together."""
        return self.growth + self.rest


@dataclass(frozen=True, slots=True)
class RejectionTimed:
    """Speculative passes with one way of keeping K and V. The acceptance is simulated, the time is
    measured.

    rejection: the probability that a draft is rejected. drafts: per pass. tokens: kept in all.
        growth: seconds of making room and of giving rows back; rest: of the model's passes. Making
        the drafts is not part of it.
    """

    rejection: float
    way: str
    drafts: int
    passes: int
    tokens: int
    growth: float
    rest: float

    @property
    def tokens_per_second(self) -> float:
        """Kept tokens by the seconds of all passes."""
        return self.tokens / (self.growth + self.rest)


@dataclass(frozen=True, slots=True)
class SizeTimed:
    """Whether the predicted r* is a good one for a model's shape: (r, seconds of growths and spare
    rows), as measured."""

    name: str
    row_bytes: int
    rows: int
    predicted: int
    overheads: tuple[tuple[int, float], ...]

    @property
    def best(self) -> int:
        """The r with the least measured overhead."""
        return min(self.overheads, key=lambda pair: pair[1])[0]


@dataclass(frozen=True, slots=True)
class MemoryHeld:
    """Bytes of K and V tensors at some r when `rows` rows are in use, and at the worst moment until
    then.
    """

    r: int
    rows: int
    bytes_used: int
    bytes_held: int
    peak_bytes: int


Point: TypeAlias = Calibration | LengthTimed | RTimed | RejectionTimed | SizeTimed | MemoryHeld
ReportEvent: TypeAlias = Began | Progressed | Point | RunEnded
_P = TypeVar("_P", bound=Point)


class Report:
    """One experiment so far. Grow it with `apply`; else read it as if frozen."""

    def __init__(self) -> None:
        self.began: Began | None = None
        self.ended: RunEnded | None = None
        self.progress = Progressed(0.0, "")
        self.points: list[Point] = []

    def apply(self, event: ReportEvent) -> None:
        """Take one more event in."""
        match event:
            case Began():
                self.began = event
            case Progressed():
                self.progress = event
            case RunEnded():
                self.ended = event
            case _:
                self.points.append(event)

    def of(self, kind: type[_P]) -> list[_P]:
        """The points of one kind."""
        return [point for point in self.points if isinstance(point, kind)]

    @property
    def fitted(self) -> Calibration | None:
        """The calibration, if the experiment made one."""
        return next(iter(self.of(Calibration)), None)

    @property
    def complete(self) -> bool:
        """Whether it came to its end."""
        return self.ended is not None and self.ended.reason == "finished"


def overheads(points: Iterable[RTimed]) -> dict[int, float]:
    """r -> measured seconds of growths and spare rows, of the padded runs."""
    return {point.r: point.overhead for point in points if point.padded}


def predicted_r(report: Report) -> int | None:
    """r* of the runs in the report by the calibration in it."""
    timed, fitted = report.of(RTimed), report.fitted
    return best_r(fitted.costs, timed[0].work) if timed and fitted is not None else None


def dumps(report: Report) -> str:
    """The report as JSON."""
    events = [event for event in (report.began, *report.points, report.ended) if event is not None]
    lines = [_converter.unstructure(event, ReportEvent) for event in events]
    return json.dumps(_FORMAT | {"events": lines}, indent=1) + "\n"


def load(path: Path) -> Report:
    """The report in a file. RecordError says what is wrong with it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict) or {name: value.get(name) for name in _FORMAT} != _FORMAT:
            raise RecordError(f"{path} is no report of this version")
        kind: Any = ReportEvent
        events: list[Any] = [_converter.structure(line, kind) for line in value["events"]]
    except (OSError, ValueError, KeyError, cattrs.BaseValidationError) as error:
        raise RecordError(f"the report {path} cannot be read: {error}") from error
    report = Report()
    for event in events:
        report.apply(event)
    return report


_converter = cattrs.Converter(forbid_extra_keys=True)
configure_tagged_union(ReportEvent, _converter, tag_name="event")
