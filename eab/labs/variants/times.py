"""How long each variant took, by repeat, and the file of recorded repeats."""

import statistics
from dataclasses import dataclass
from typing import Final, TypeAlias

from eab.events import Progressed, RunEnded
from eab.record.report import Began, Report, ReportFormat
from eab.run import RunState

_DIGITS: Final = 7  # decimal places of seconds, i.e. 0.1 microseconds


@dataclass(frozen=True, slots=True)
class RunTimed:
    """The times of one run, and counts over its decode steps (all steps after the first)."""

    variant: str
    step_seconds: tuple[float | None, ...]  # None if an earlier pass served the step
    forward_seconds: float  # time of the forward passes of the decode steps
    draft_seconds: float  # time of the drafter in the decode steps
    forward_passes: int
    tokens: int  # tokens through the model in the decode steps
    draft_tokens: int

    @property
    def seconds(self) -> float:
        """Seconds of the whole run."""
        return sum(seconds for seconds in self.step_seconds if seconds is not None)

    @property
    def first_step(self) -> float:
        """Seconds of the step that prefills the prompt."""
        return next(iter(self.step_seconds), None) or 0.0

    @property
    def decode_seconds(self) -> float:
        """Seconds of all steps after the first."""
        return sum(self._decode_steps)

    @property
    def step_median(self) -> float:
        """Median seconds of the decode steps; of all steps if there is only one."""
        return statistics.median(self._decode_steps or [self.seconds])

    @property
    def _decode_steps(self) -> list[float]:
        return [seconds for seconds in self.step_seconds[1:] if seconds is not None]


def run_timed(variant: str, run: RunState) -> RunTimed:
    """The times of a run."""
    timings = [step.timing for step in run.steps]
    decoding = [timing for timing in timings[1:] if timing is not None]
    return RunTimed(
        variant,
        tuple(None if timing is None else round(timing.seconds, _DIGITS) for timing in timings),
        round(sum(timing.forward_seconds for timing in decoding), _DIGITS),
        round(sum(timing.draft_seconds for timing in decoding), _DIGITS),
        sum(step.forward_passes for step in run.steps[1:]),
        sum(timing.tokens for timing in decoding),
        sum(len(drafted.draft_tokens) for drafted in run.speculations),
    )


_InFile: TypeAlias = Began | RunTimed | Progressed | RunEnded


class VariantTimes(Report[Began, RunTimed]):
    """The repeats of a comparison; a recording has its runs in run files next to this file."""

    beginning = Began
    point = "repeat"


_FORMAT: Final = ReportFormat(VariantTimes, "eab-variant-times", 1, _InFile)
dumps, load = _FORMAT.dumps, _FORMAT.load
