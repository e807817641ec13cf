"""The allocations of a run, by r: a chart, and sentences."""

from collections.abc import Sequence

from eab.analysis.kv_allocation import Demand, StepAllocation
from eab.formatting import counted
from eab.labs.bmc.results import R_AXIS
from eab.labs.measurement import Chart
from eab.timing import Timing


def steps_sentence(steps: Sequence[StepAllocation], r: int | str) -> str:
    """How often the tensors grow, how many rows that copies, and how many rows are spare."""
    growths = [step for step in steps[1:] if step.grew]
    copied = copied_rows(growths)
    spare = sum(step.spare for step in steps) / max(1, len(steps))
    return (
        f"At r = {r} the tensors grow {counted(len(growths), 'time')} after the prompt and copy "
        f"{counted(copied, 'row')}; on average they hold {counted(round(spare), 'spare row')} "
        "(counted from the run's events)."
    )


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


def run_curve_sentence(demand: Demand, rs: Sequence[int], best: int | None) -> str:
    """The rows at both ends of the curve, and the r that the cost model prefers."""
    least, most = demand.at(rs[0]), demand.at(rs[-1])
    preferred = (
        ""
        if best is None
        else f" With padded attention, the cost model prefers r = {best} for this run."
    )
    return (
        f"Growths copy {counted(copied_rows(least), 'row')} in the whole run at r = {rs[0]} and "
        f"{copied_rows(most):,} at r = {rs[-1]}; padded attention reads {spare_rows(least):,} and "
        f"{counted(spare_rows(most), 'spare row')} (counted).{preferred} With sliced attention, "
        "only copies cost time."
    )
