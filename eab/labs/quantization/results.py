"""Results for weights in fewer bits: frozen points, and the report that collects them.

The minimum time of a decode step, in which weights are read once and multiplied with every row,
follows from the roofline model of Williams, Waterman and Patterson, 2009.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median
from typing import Final, NamedTuple, TypeAlias

from eab.events import Progressed, RunEnded
from eab.record import report as reports
from eab.run import RunState
from eab.timing import Timing
from eab.weight_formats import AS_LOADED


@dataclass(frozen=True, slots=True)
class FormatsBegan(reports.Began):
    """The start of a measurement."""

    layout: str  # layout of the weights as loaded
    prompt: str
    characters: int  # of the held-out text
    tokens: int  # of the held-out text
    threshold: float  # the entropy (nats) from which a token forks
    known: int  # number of prompts with a known entropy


@dataclass(frozen=True, slots=True)
class MachineMeasured:
    """The two speed limits of a machine."""

    bytes_per_second: tuple[float, ...]  # reading a matrix too large for caches, by repeat
    operations_per_second: tuple[float, ...]  # multiplying two large matrices, by repeat


@dataclass(frozen=True, slots=True)
class FormatStep:
    """Timings of one decode step, alternating with the same step of the model as loaded."""

    rows: int
    seconds: tuple[float, ...]  # one per repeat
    loaded_seconds: tuple[float, ...]  # of the model as loaded, one per repeat

    @property
    def timing(self) -> Timing:
        """Median and spread in this format."""
        return Timing(self.seconds)

    @property
    def loaded(self) -> Timing:
        """Median and spread of the model as loaded."""
        return Timing(self.loaded_seconds)


@dataclass(frozen=True, slots=True)
class FormatMeasured:
    """A model with its weights in one format."""

    weights: str
    total_bytes: int  # of all weights
    read_bytes: int  # read in a decode step; input embeddings count only if tied
    parameters: int  # of the linear layers, including a tied output layer
    kept: int  # number of linear layers that stayed as loaded
    steps: tuple[FormatStep, ...]  # one for each number of rows
    nats_per_character: float  # loss on the held-out text
    divergence: float  # KL from the model as loaded, nats per token of the held-out text
    flipped: float  # share of these tokens where a fork appears or vanishes
    prompt_divergence: float  # KL (nats) for the token after the prompt
    entropy_error: float | None  # mean distance (bits) from the known entropies, if any

    def step(self, rows: int) -> FormatStep | None:
        """The step with this many rows, if it was timed."""
        return next((step for step in self.steps if step.rows == rows), None)


@dataclass(frozen=True, slots=True)
class FormatMissing:
    """A format that this machine cannot compute, and why."""

    weights: str
    reason: str


Point: TypeAlias = MachineMeasured | FormatMeasured | FormatMissing
ReportEvent: TypeAlias = FormatsBegan | Progressed | Point | RunEnded


class FormatReport(reports.Report[FormatsBegan, Point]):
    """The measurement so far."""

    beginning = FormatsBegan

    @property
    def formats(self) -> list[FormatMeasured]:
        """The formats so far, as-loaded first, with the repeats from all comparisons merged."""
        formats = self.of(FormatMeasured)
        return [
            _with_all_repeats(measured, formats) if measured.weights == AS_LOADED else measured
            for measured in formats
        ]

    @property
    def machine(self) -> MachineMeasured | None:
        """The speed limits of the machine, if they have been measured."""
        return next(iter(self.of(MachineMeasured)), None)


def _with_all_repeats(loaded: FormatMeasured, formats: Iterable[FormatMeasured]) -> FormatMeasured:
    others, steps = [measured for measured in formats if measured is not loaded], []
    for step in loaded.steps:
        beside = [timed for measured in others if (timed := measured.step(step.rows)) is not None]
        seconds = step.seconds + tuple(
            taken for measured in beside for taken in measured.loaded_seconds
        )
        steps.append(FormatStep(step.rows, seconds, seconds))
    return replace(loaded, steps=tuple(steps))


_FORMAT: Final = reports.ReportFormat(FormatReport, "eab-quantization", 1, ReportEvent)
dumps, load = _FORMAT.dumps, _FORMAT.load


class RunPoint(NamedTuple):
    """A run on the roofline: median tokens per forward pass, and median seconds per pass."""

    rows: float
    seconds: float


def bound(measured: FormatMeasured, machine: MachineMeasured, rows: float) -> float:
    """The minimum seconds of a step: the longer of reading the weights and multiplying."""
    reading = measured.read_bytes / median(machine.bytes_per_second)
    multiplying = 2 * measured.parameters * rows / median(machine.operations_per_second)
    return max(reading, multiplying)


def ridge(measured: FormatMeasured, machine: MachineMeasured) -> float:
    """The number of rows at which multiplying takes as long as reading the weights."""
    per_row = 2 * measured.parameters / median(machine.operations_per_second)
    return measured.read_bytes / median(machine.bytes_per_second) / per_row


def run_point(run: RunState) -> RunPoint | None:
    """The median decode pass of a run; None if no pass after the prompt was timed."""
    timings = [step.timing for step in run.steps[1:] if step.timing is not None]
    timings = [timing for timing in timings if timing.forward_seconds > 0]
    if not timings:
        return None
    return RunPoint(
        median(timing.tokens for timing in timings),
        median(timing.forward_seconds for timing in timings),
    )
