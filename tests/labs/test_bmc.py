"""The rows of a run at each r, and the experiments as they are measured."""

import torch
from made_runs import bundled_run

from eab.engine.caches.growth import CostModel
from eab.engine.caches.shape import KVShape
from eab.figures.kv_memory import Demand, StepRows, best_r_of, demand_of
from eab.labs import bmc as results
from eab.labs.bmc import allocations_table, predicted_r
from eab.labs.charts import chart_figure
from eab.labs.measure_bmc import (
    other_sizes,
    r_grid,
    rejected_drafts,
    sensitivity_to_r,
)
from eab.labs.measurement import Report, Values
from eab.run.events import Progressed


def test_the_curve_of_a_run_counts_rows_and_names_the_preferred_r():
    needs = tuple(StepRows(step, 10 + step, 1) for step in range(9))
    demand = Demand(needs, steps_allowed=9, paths_allowed=1, row_bytes=8)
    copied, spare = chart_figure(results.run_curve(demand, (1, 4), None)).data
    # r = 1 copies 10, 11, ... 17 rows; r = 4 copies 10 and 14, and has 3, 2, 1, 0 spare rows twice.
    assert list(copied.y) == [sum(range(10, 18)), 24]
    assert list(zip(spare.x, spare.y, strict=True)) == [(4, 12)]
    free = CostModel(copy_row=1.0, allocation=0.0, spare_row=1e-9)
    dear = CostModel(copy_row=1e-9, allocation=0.0, spare_row=1.0)
    assert [best_r_of(demand, (1, 4), costs) for costs in (free, dear)] == [4, 1]
    assert "prefers r = 4. With" in results.run_curve_sentence(4)
    assert results.run_curve_sentence(None).startswith("With sliced")
    assert [*results.steps_measures(demand.at(4)).values()] == ["2", "24", "1.3"]


def test_the_table_of_allocations_counts_the_steps_at_each_r() -> None:
    demand = demand_of(bundled_run("bridge"))
    table = allocations_table(demand, (1, 8, 64))
    for row in table.to_dict("records"):
        steps = demand.at(int(row["r"]))
        assert row["rows_copied"] == sum(step.copied for step in steps)
        assert row["most_bytes_held"] == max(step.held for step in steps) * demand.row_bytes
    assert [*table["rows_copied"]] == sorted(table["rows_copied"], reverse=True)


SHAPE = KVShape(1, 1, 4, torch.float32, torch.device("cpu"), group=1)
ROWS, REPEATS = 8, 3


def collected(events) -> Report:
    return Report().collect(events)


def of(rows: list[Values], *names: str) -> list[tuple]:
    return [tuple(row[name] for name in names) for row in rows]


def test_every_r_is_timed_once_per_repeat_and_the_warm_up_is_left_out():
    report = collected(sensitivity_to_r(SHAPE, ROWS, REPEATS))
    rows, best = report.rows("growth"), predicted_r(report)
    assert best is not None
    grid = [(r, True) for r in r_grid(ROWS, best)] + [(1, False), (16, False), (ROWS, False)]
    assert of(rows, "r", "padded") == grid * REPEATS
    for row in rows:
        assert row["growths"] == -(-ROWS // row["r"])
        assert row["rows_copied"] == sum(range(0, ROWS, row["r"]))
        assert row["rest"] > 0


def test_the_same_drafts_are_rejected_in_every_repeat(twins):
    events = rejected_drafts(twins("llama").ours, ROWS, REPEATS, rejections=(0.0, 0.5))
    rows = collected(events).rows("rejection")
    ways = list(dict.fromkeys(row["way"] for row in rows))
    assert len(ways) == 5
    order = [(rejection, way) for rejection in (0.0, 0.5) for way in ways]
    assert of(rows, "rejection", "way") == order * REPEATS
    passes = of(rows, "passes")
    assert passes == passes[: len(order)] * REPEATS
    assert all(row["tokens"] == ROWS for row in rows)


def test_other_shapes_have_a_row_per_repeat_and_r(monkeypatch):
    def no_calibration(calibrator):
        yield Progressed(0.5, "calibrating")
        return CostModel(1e-6, 1e-6, 1e-6)

    monkeypatch.setattr("eab.labs.measure_bmc.calibrate", no_calibration)
    monkeypatch.setattr("eab.labs.measure_bmc.SIZES", {"other": (1, 1, 8, 2)})
    report = collected(other_sizes(SHAPE, "ours", ROWS, REPEATS))
    for model in ("ours", "other"):
        rows = report.rows("sizes", model=model)
        tried = {row["r"] for row in rows}
        assert {1, ROWS, rows[0]["predicted"]} <= tried
        assert of(rows, "r") == [(r,) for r in sorted(tried)] * REPEATS
        assert all(row["bytes_used"] <= row["peak_bytes"] for row in rows)
        copied, all_at_once = (row for row in rows[: len(tried)] if row["r"] in (1, ROWS))
        assert copied["peak_bytes"] > all_at_once["peak_bytes"] == all_at_once["bytes_used"]
