"""The BMC experiments on a tiny shape: their rows, the order of the rows, and their counts. No test
depends on a clock.
"""

import torch

from eab.caches.growth import CostModel
from eab.caches.shape import KVShape
from eab.events import Progressed
from eab.labs.bmc import predicted_r
from eab.labs.measure_bmc import (
    other_sizes,
    r_grid,
    rejected_drafts,
    sensitivity_to_r,
)
from eab.labs.measurement import Report, Values

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
