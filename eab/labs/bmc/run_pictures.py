"""The allocations of a run, by r: a chart and numbers."""

from collections.abc import Sequence

from eab.analysis.kv_allocation import Demand, StepAllocation
from eab.labs.bmc.results import R_AXIS
from eab.labs.measurement import Chart
from eab.timing import Timing


def steps_measures(steps: Sequence[StepAllocation]) -> dict[str, str]:
    """The growths after the prompt, the rows that they copy, and the spare rows."""
    growths = [step for step in steps[1:] if step.grew]
    spare = sum(step.spare for step in steps) / max(1, len(steps))
    return {
        "Growths": f"{len(growths):,}",
        "Rows that they copy": f"{copied_rows(growths):,}",
        "Spare rows, mean": f"{spare:,.1f}",
    }


def run_curve(demand: Demand, rs: Sequence[int], r: int | None) -> Chart:
    """The rows that growths copy and the spare rows of all steps, by r."""
    counts = {"rows copied": copied_rows, "spare rows, if attention reads them": spare_rows}
    lines = {
        name: {x: Timing((count(demand.at(x)),)) for x in rs} for name, count in counts.items()
    }
    mark = None if r is None else (r, f"r = {r}")
    return Chart(R_AXIS, "rows in all steps, without 0", lines, log="xy", ticks=rs, mark=mark)


def copied_rows(steps: Sequence[StepAllocation]) -> int:
    """How many rows all growths copy."""
    return sum(step.copied for step in steps)


def spare_rows(steps: Sequence[StepAllocation]) -> int:
    """The spare rows of all steps after the prompt."""
    return sum(step.spare for step in steps[1:])


def run_curve_sentence(best: int | None) -> str:
    """The r that the cost model prefers for the run, if there is one."""
    padded = "" if best is None else f"With padded attention, the cost model prefers r = {best}. "
    return f"{padded}With sliced attention, only copies cost time."
