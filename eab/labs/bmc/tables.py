"""Measurements and computations of the BMC laboratory as tables for download."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from eab.analysis.kv_demand import Demand, predicted_overhead
from eab.caches.growth import Calibration, CostModel, overhead
from eab.labs.bmc.results import ExperimentReport, Point, RTimed, SizeTimed


def allocations_table(demand: Demand, rs: Sequence[int], costs: CostModel | None) -> pd.DataFrame:
    """One row per r for a recorded run: growths, rows, bytes; with `costs`, predicted seconds."""
    paths = [need.paths for need in demand.needs]
    rows = []
    for r in rs:
        steps = demand.at(r)
        row: dict[str, Any] = {
            "r": r,
            "growths": sum(step.grew for step in steps[1:]),
            "rows_copied": sum(step.copied for step in steps),
            "bytes_copied": sum(step.copied for step in steps) * demand.row_bytes,
            "spare_rows_mean": sum(step.spare for step in steps) / len(steps),
            "most_bytes_held": max(step.held for step in steps) * demand.row_bytes,
        }
        if costs is not None:
            copying, visiting = predicted_overhead(costs, steps, paths)
            row |= {"predicted_copy_seconds": copying, "predicted_spare_seconds": visiting}
        rows.append(row)
    return pd.DataFrame(rows)


def points_table(report: ExperimentReport) -> pd.DataFrame:
    """One row per measured point, in seconds and bytes."""
    fitted = report.fitted
    rows = [
        row
        for point in report.points
        if not isinstance(point, Calibration)
        for row in _point_rows(point, fitted)
    ]
    return pd.DataFrame(rows)


def _point_rows(point: Point, fitted: Calibration | None) -> list[dict[str, Any]]:
    row = asdict(point)
    if isinstance(point, SizeTimed):
        row.pop("overheads")
        return [row | {"r": r, "overhead": seconds} for r, seconds in point.overheads]
    if isinstance(point, RTimed):
        row |= {f"work_{name}": value for name, value in row.pop("work").items()}
        if fitted is not None and point.padded:
            row["predicted_overhead"] = overhead(fitted.costs, point.work, point.r)
    return [row]
