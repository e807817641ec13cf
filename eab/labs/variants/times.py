"""How long each variant took, repeat by repeat, and the file of recorded repeats."""

import statistics
from dataclasses import dataclass
from typing import Final, TypeAlias

from eab.events import Progressed, RunEnded
from eab.record.report import Began, Report, ReportFormat
from eab.run import RunState

_DIGITS: Final = 7  # of seconds: 0.1 microseconds


@dataclass(frozen=True, slots=True)
class RunTimed:
    """The times of one run, and counts of its decode steps, those after the first step."""

    variant: str
    step_seconds: tuple[float | None, ...]  # None where an earlier pass served it
    forward_seconds: float  # of the passes of the decode steps
    draft_seconds: float  # what the drafter took in them
    forward_passes: int
    tokens: int  # tokens that went through the model in them
    draft_tokens: int

    @property
    def seconds(self) -> float:
        """Of the whole run."""
        return sum(seconds for seconds in self.step_seconds if seconds is not None)

    @property
    def first_step(self) -> float:
        """Of the step that computes the prompt, in seconds."""
        return next(iter(self.step_seconds), None) or 0.0

    @property
    def decode_seconds(self) -> float:
        """Of all steps after the first."""
        return sum(self._decode_steps)

    @property
    def step_median(self) -> float:
        """The median of the decode steps, in seconds; of all steps, if there is only one."""
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
    """The repeats of a comparison; in a recording, its runs are in run files next to them."""

    beginning = Began
    point = "repeat"


_FORMAT: Final = ReportFormat(VariantTimes, "eab-variant-times", 1, _InFile)
dumps, load = _FORMAT.dumps, _FORMAT.load
