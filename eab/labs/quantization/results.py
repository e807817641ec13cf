"""Results for weights in fewer bits: frozen points, and the report that collects them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from eab.events import Progressed, RunEnded
from eab.record import report as reports
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
