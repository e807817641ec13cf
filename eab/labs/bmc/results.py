"""Results of the BMC measurements: frozen points, a report that collects them, and its file.

All seconds and bytes were measured on the machine that made the report, except those that are
called predictions. A point with seconds is one repeat; a report has several of each, which were
measured in turn. No PyTorch is needed here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from eab.caches.growth import Calibration, Workload, best_r, overhead
from eab.events import Progressed, RunEnded
from eab.record import report as reports
from eab.timing import Timing, timings_by

Experiment = Literal["lengths", "growth", "rejection", "sizes", "memory"]
EXPERIMENTS: Final[tuple[Experiment, ...]] = get_args(Experiment)


@dataclass(frozen=True, slots=True)
class Began(reports.Began):
    """The start of an experiment.

    Attributes:
        experiment: Which experiment.
        row_bytes: Bytes of a row of the model's KV cache.
    """

    experiment: Experiment
    row_bytes: int


@dataclass(frozen=True, slots=True)
class LengthTimed:
    """One step at r = 1, in seconds.

    Attributes:
        rows: Rows in use.
        growth: To allocate and copy.
        attention: Of attention in all layers.
        step: Of the whole step with the model; None beyond the model's context.
    """

    rows: int
    growth: float
    attention: float
    step: float | None


@dataclass(frozen=True, slots=True)
class RTimed:
    """The KV part of writing `work.rows` rows at one growth step: seconds and exact counts.

    Attributes:
        work: What was written.
        r: The growth step.
        padded: Whether attention visited the spare rows.
        growth: Seconds of the growths.
        rest: Seconds of everything else.
        spare: The part of `rest` that spare rows add, measured by running each forward pass once
            with and once without them.
        growths: Number of growths.
        rows_copied: Rows copied by them.
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
        """Seconds of the growths and of visiting spare rows, which BMC balances."""
        return self.growth + self.spare

    @property
    def seconds(self) -> float:
        """Seconds of KV update and attention together."""
        return self.growth + self.rest


@dataclass(frozen=True, slots=True)
class RejectionTimed:
    """Speculative decoding with one way to store K and V.

    Which draft tokens are rejected is simulated; the time is measured. Drafting is not part of it.

    Attributes:
        rejection: The probability that a draft token is rejected.
        way: How K and V are stored.
        drafts: Draft tokens per forward pass.
        passes: Number of forward passes.
        tokens: Tokens kept by all of them.
        growth: Seconds to grow the tensors and to trim rejected rows.
        rest: Seconds of the model's forward passes.
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
        """Kept tokens divided by the seconds of all forward passes."""
        return self.tokens / (self.growth + self.rest)


@dataclass(frozen=True, slots=True)
class SizeTimed:
    """The overhead by r for the shape of a model.

    Attributes:
        name: The model.
        row_bytes: Bytes of a row of its KV cache.
        rows: Rows written.
        predicted: The predicted r*.
        overheads: Pairs of r and the measured seconds of growths and spare rows.
    """

    name: str
    row_bytes: int
    rows: int
    predicted: int
    overheads: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class MemoryHeld:
    """Bytes of the K and V tensors.

    Attributes:
        r: The growth step.
        rows: Rows in use.
        bytes_used: Bytes of these rows.
        bytes_held: Bytes that the tensors hold.
        peak_bytes: The most bytes that the tensors have held so far.
    """

    r: int
    rows: int
    bytes_used: int
    bytes_held: int
    peak_bytes: int


_Timed: TypeAlias = LengthTimed | RTimed | RejectionTimed | SizeTimed
Point: TypeAlias = Calibration | LengthTimed | RTimed | RejectionTimed | SizeTimed | MemoryHeld
ReportEvent: TypeAlias = Began | Progressed | Point | RunEnded


class Report(reports.Report[Began, Point]):
    """One experiment so far."""

    beginning = Began

    @property
    def fitted(self) -> Calibration | None:
        """The last calibration, if the experiment made one."""
        return next(reversed(self.of(Calibration)), None)

    @property
    def presentable(self) -> bool:
        """Whether it ran to its end, or was stopped after whole repeats."""
        return self.complete or any(isinstance(point, _Timed) for point in self.points)


def overheads(points: Iterable[RTimed]) -> dict[int, Timing]:
    """Measured time of growths and spare rows by r, of the padded runs."""
    return timings_by((point.r, point.overhead) for point in points if point.padded)


def predicted_r(report: Report) -> int | None:
    """The measured r next to r*, predicted by the calibration before the runs; None without one of
    these.
    """
    timed, fitted = report.of(RTimed), report.of(Calibration)
    if not timed or not fitted:
        return None
    best = best_r(fitted[0].costs, timed[0].work)
    return min((point.r for point in timed if point.padded), key=lambda r: abs(r - best))


def prediction_errors(report: Report) -> dict[int, float]:
    """Predicted over measured time of growths and spare rows by r; without those r where nothing is
    left of it in the noise.
    """
    timed, fitted = report.of(RTimed), report.fitted
    if fitted is None:
        return {}
    return {
        r: overhead(fitted.costs, timed[0].work, r) / timing.median
        for r, timing in overheads(timed).items()
        if timing.median > 0
    }


_FORMAT: Final = reports.ReportFormat(Report, "eab-bmc", 1, ReportEvent)
dumps, load = _FORMAT.dumps, _FORMAT.load
