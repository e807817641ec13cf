"""Results of the BMC measurements: frozen points, a report that collects them, its file and tables.

Seconds and bytes are measured unless called predictions. A point with seconds is one repeat.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

import pandas as pd

from eab.analysis.kv_allocation import Demand
from eab.caches.growth import CacheWorkload, Calibration, best_r
from eab.events import Progressed, RunEnded
from eab.record import report as reports
from eab.timing import Timing, timings_by

Experiment = Literal["lengths", "growth", "rejection", "sizes", "memory"]
EXPERIMENTS: Final[tuple[Experiment, ...]] = get_args(Experiment)


@dataclass(frozen=True, slots=True)
class ExperimentBegan(reports.Began):
    """The start of an experiment."""

    experiment: Experiment
    row_bytes: int  # bytes per row of the model's KV cache


@dataclass(frozen=True, slots=True)
class LengthTimed:
    """One step at r = 1, in seconds."""

    rows: int
    growth: float  # allocating and copying
    attention: float  # attention in all layers
    step: float | None  # the whole step with the model; None beyond the model's context


@dataclass(frozen=True, slots=True)
class RTimed:
    """The KV part of writing `work.rows` rows at one growth step: seconds and exact counts."""

    work: CacheWorkload
    r: int
    padded: bool  # whether attention visited the spare rows
    growth: float  # seconds of all growths
    rest: float  # seconds of everything else
    spare: float  # the part of `rest` that is due to spare rows
    growths: int
    rows_copied: int

    @property
    def overhead(self) -> float:
        """Seconds of the growths and of visiting spare rows, which BMC balances."""
        return self.growth + self.spare

    @property
    def seconds(self) -> float:
        """Seconds of KV updates and attention together."""
        return self.growth + self.rest


@dataclass(frozen=True, slots=True)
class RejectionTimed:
    """Speculative decoding in one way, measured without drafting; rejections are simulated."""

    rejection: float  # the probability that a draft token is rejected
    way: str  # how K and V are stored
    drafts: int
    passes: int
    tokens: int  # tokens kept, over all passes
    growth: float  # seconds to grow the tensors and to trim rejected rows
    rest: float  # seconds of the model's forward passes

    @property
    def tokens_per_second(self) -> float:
        """Kept tokens divided by the seconds of all forward passes."""
        return self.tokens / (self.growth + self.rest)


@dataclass(frozen=True, slots=True)
class SizeTimed:
    """The overhead by r for one model's shape."""

    name: str
    row_bytes: int
    rows: int
    predicted: int  # the predicted r*
    overheads: tuple[tuple[int, float], ...]  # r, seconds of growths and spare rows


@dataclass(frozen=True, slots=True)
class MemoryHeld:
    """Bytes of the K and V tensors."""

    r: int
    rows: int
    bytes_used: int
    bytes_held: int
    peak_bytes: int  # the most bytes that the tensors have held so far


_Timed: TypeAlias = LengthTimed | RTimed | RejectionTimed | SizeTimed
Point: TypeAlias = Calibration | LengthTimed | RTimed | RejectionTimed | SizeTimed | MemoryHeld
ReportEvent: TypeAlias = ExperimentBegan | Progressed | Point | RunEnded


class ExperimentReport(reports.Report[ExperimentBegan, Point]):
    """The experiment so far."""

    beginning = ExperimentBegan

    @property
    def fitted(self) -> Calibration | None:
        """The last calibration, if the experiment made one."""
        return next(reversed(self.of(Calibration)), None)

    @property
    def presentable(self) -> bool:
        """Whether the experiment ran to its end or was stopped after at least one whole repeat."""
        return self.complete or any(isinstance(point, _Timed) for point in self.points)


def overheads(points: Iterable[RTimed]) -> dict[int, Timing]:
    """Measured time of growths and spare rows by r, for padded runs only."""
    return timings_by((point.r, point.overhead) for point in points if point.padded)


def predicted_r(report: ExperimentReport) -> int | None:
    """The measured r nearest to the r* predicted by the calibration before the runs."""
    timed, fitted = report.of(RTimed), report.of(Calibration)
    if not timed or not fitted:
        return None
    best = best_r(fitted[0].costs, timed[0].work)
    return min((point.r for point in timed if point.padded), key=lambda r: abs(r - best))


_FORMAT: Final = reports.ReportFormat(ExperimentReport, "eab-bmc", 1, ReportEvent)
dumps, load = _FORMAT.dumps, _FORMAT.load


def allocations_table(demand: Demand, rs: Sequence[int]) -> pd.DataFrame:
    """One row per r for a recorded run: growths, rows, bytes."""
    rows = []
    for r in rs:
        steps = demand.at(r)
        row = {
            "r": r,
            "growths": sum(step.grew for step in steps[1:]),
            "rows_copied": sum(step.copied for step in steps),
            "bytes_copied": sum(step.copied for step in steps) * demand.row_bytes,
            "spare_rows_mean": sum(step.spare for step in steps) / len(steps),
            "most_bytes_held": max(step.held for step in steps) * demand.row_bytes,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def points_table(report: ExperimentReport) -> pd.DataFrame:
    """One row per measured point, in seconds and bytes."""
    rows = [
        row
        for point in report.points
        if not isinstance(point, Calibration)
        for row in _point_rows(point)
    ]
    return pd.DataFrame(rows)


def _point_rows(point: Point) -> list[dict[str, Any]]:
    row = asdict(point)
    if isinstance(point, SizeTimed):
        row.pop("overheads")
        return [row | {"r": r, "overhead": seconds} for r, seconds in point.overheads]
    if isinstance(point, RTimed):
        row |= {f"work_{name}": value for name, value in row.pop("work").items()}
    return [row]
