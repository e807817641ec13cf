"""The minimum time of a decode step: its weights are read once and multiplied with every row.

The roofline model of Williams, Waterman and Patterson, 2009, over the number of rows.
"""

from statistics import median
from typing import NamedTuple

from eab.labs.quantization.results import FormatMeasured, MachineMeasured
from eab.run import RunState


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
