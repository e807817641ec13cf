"""Measurements and computations of the BMC laboratory as tables for download."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from eab.analysis.kv_demand import Demand
from eab.caches.growth import Calibration
from eab.labs.bmc.results import ExperimentReport, Point, RTimed, SizeTimed


def allocations_table(demand: Demand, rs: Sequence[int]) -> pd.DataFrame:
    """One row per r for a recorded run: growths, rows, bytes."""
    rows = []
    for r in rs:
        steps = demand.at(r)
        row = {
            "r": r,
            "growths": sum(step.grew for step in steps[1:]),
            "rows_copied": sum(step.copied for step in steps),
            "bytes_copied": sum(step.copied for step in steps) * demand.row_bytes,
            "spare_rows_mean": sum(step.spare for step in steps) / len(steps),
            "most_bytes_held": max(step.held for step in steps) * demand.row_bytes,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def points_table(report: ExperimentReport) -> pd.DataFrame:
    """One row per measured point, in seconds and bytes."""
    rows = [
        row
        for point in report.points
        if not isinstance(point, Calibration)
        for row in _point_rows(point)
    ]
    return pd.DataFrame(rows)


def _point_rows(point: Point) -> list[dict[str, Any]]:
    row = asdict(point)
    if isinstance(point, SizeTimed):
        row.pop("overheads")
        return [row | {"r": r, "overhead": seconds} for r, seconds in point.overheads]
    if isinstance(point, RTimed):
        row |= {f"work_{name}": value for name, value in row.pop("work").items()}
    return [row]
