"""Results with weights in fewer bits: frozen points, and the report that collects them."""

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

    layout: str  # of the weights as loaded
    prompt: str
    characters: int  # of the held-out text
    tokens: int  # of the held-out text
    threshold: float  # the entropy (nats) at which a fork would begin
    known: int  # how many prompts have a known entropy


@dataclass(frozen=True, slots=True)
class MachineMeasured:
    """The two limits of a processor."""

    bytes_per_second: tuple[float, ...]  # of a matrix that caches cannot hold
    operations_per_second: tuple[float, ...]  # of two large matrices, by repeat


@dataclass(frozen=True, slots=True)
class FormatStep:
    """One decode step, in turns with the same step of the model as loaded."""

    rows: int
    seconds: tuple[float, ...]  # one number per repeat
    loaded_seconds: tuple[float, ...]  # the same of the model as loaded

    @property
    def timing(self) -> Timing:
        """Median and spread."""
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
    read_bytes: int  # in a decode step, without an input embedding that is not tied
    parameters: int  # in the linear layers, a tied output layer included
    kept: int  # how many linear layers stayed as loaded
    steps: tuple[FormatStep, ...]  # of several numbers of rows
    nats_per_character: float  # loss on the held-out text
    divergence: float  # from the model as loaded (KL), nats per token of the held-out text
    flipped: float  # share of these tokens at which a fork appears or vanishes
    prompt_divergence: float  # KL (nats) of the token after the prompt
    entropy_error: float | None  # mean distance (bits) from the known entropies, if any

    def step(self, rows: int) -> FormatStep | None:
        """The step of this many rows, if it was timed."""
        return next((step for step in self.steps if step.rows == rows), None)


@dataclass(frozen=True, slots=True)
class FormatMissing:
    """A format that this machine cannot compute, and why."""

    weights: str
    reason: str


Point: TypeAlias = MachineMeasured | FormatMeasured | FormatMissing
ReportEvent: TypeAlias = FormatsBegan | Progressed | Point | RunEnded


class FormatReport(reports.Report[FormatsBegan, Point]):
    """One measurement so far."""

    beginning = FormatsBegan

    @property
    def formats(self) -> list[FormatMeasured]:
        """The formats so far, the model as loaded first; it has the steps of all its repeats."""
        found = self.of(FormatMeasured)
        return [
            _with_all_repeats(measured, found) if measured.weights == AS_LOADED else measured
            for measured in found
        ]

    @property
    def machine(self) -> MachineMeasured | None:
        """The limits of the processor, if they have been measured."""
        return next(iter(self.of(MachineMeasured)), None)


def _with_all_repeats(loaded: FormatMeasured, found: Iterable[FormatMeasured]) -> FormatMeasured:
    others, steps = [measured for measured in found if measured is not loaded], []
    for step in loaded.steps:
        beside = [timed for measured in others if (timed := measured.step(step.rows)) is not None]
        seconds = step.seconds + tuple(
            taken for measured in beside for taken in measured.loaded_seconds
        )
        steps.append(FormatStep(step.rows, seconds, seconds))
    return replace(loaded, steps=tuple(steps))


_FORMAT: Final = reports.ReportFormat(FormatReport, "eab-quantization", 1, ReportEvent)
dumps, load = _FORMAT.dumps, _FORMAT.load
