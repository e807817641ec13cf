"""The BMC page's figures as tables for downloads."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from eab.bmc.costs import Costs, overhead
from eab.bmc.demand import Demand, predicted_overhead
from eab.bmc.results import Fitted, Point, Report, RTimed, SizeTimed


def allocations_table(demand: Demand, rs: Sequence[int], costs: Costs | None) -> pd.DataFrame:
    """One line per r for a recorded run: counted growths, rows and bytes; with costs, predicted seconds."""
    paths = [need.paths for need in demand.needs]
    lines = []
    for r in rs:
        steps = demand.at(r)
        line: dict[str, Any] = {
            "r": r,
            "growths": sum(step.grew for step in steps[1:]),
            "rows_copied": sum(step.copied for step in steps),
            "bytes_copied": sum(step.copied for step in steps) * demand.row_bytes,
            "spare_rows_mean": sum(step.spare for step in steps) / len(steps),
            "most_bytes_held": max(step.held for step in steps) * demand.row_bytes,
        }
        if costs is not None:
            copying, visiting = predicted_overhead(costs, steps, paths)
            line |= {"predicted_copy_seconds": copying, "predicted_spare_seconds": visiting}
        lines.append(line)
    return pd.DataFrame(lines)


def points_table(report: Report) -> pd.DataFrame:
    """One line per measured point; seconds and bytes."""
    fitted = report.fitted
    lines = [line for point in report.points if not isinstance(point, Fitted) for line in _lines(point, fitted)]
    return pd.DataFrame(lines)


def _lines(point: Point, fitted: Fitted | None) -> list[dict[str, Any]]:
    line = asdict(point)
    if isinstance(point, SizeTimed):
        line.pop("overheads")
        return [line | {"r": r, "overhead": seconds} for r, seconds in point.overheads]
    if isinstance(point, RTimed):
        line |= {f"work_{name}": value for name, value in line.pop("work").items()}
        if fitted is not None and point.padded:
            line["predicted_overhead"] = overhead(fitted.costs, point.work, point.r)
    return [line]
