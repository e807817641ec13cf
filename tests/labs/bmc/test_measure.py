"""The BMC experiments on a tiny shape: their points, the order of the points, and their counts. No
test depends on a clock.
"""

import torch

from eab.caches.growth import Calibration, CostModel
from eab.caches.shape import KVShape
from eab.events import Progressed
from eab.labs.bmc.measure import (
    copy_against_compute,
    other_sizes,
    r_grid,
    rejected_drafts,
    sensitivity_to_r,
)
from eab.labs.bmc.results import (
    ExperimentReport,
    LengthTimed,
    RejectionTimed,
    RTimed,
    SizeTimed,
    predicted_r,
)

SHAPE = KVShape(1, 1, 4, torch.float32, torch.device("cpu"), group=1)
ROWS, REPEATS = 8, 3


def collected(events) -> ExperimentReport:
    return ExperimentReport().collect(events)


def test_every_r_is_timed_once_per_repeat_and_the_warm_up_is_left_out():
    report = collected(sensitivity_to_r(SHAPE, ROWS, REPEATS))
    timed = report.of(RTimed)
    best = predicted_r(report)
    assert best is not None
    grid = [(r, True) for r in r_grid(ROWS, best)] + [(1, False), (16, False), (ROWS, False)]
    assert [(one.r, one.padded) for one in timed] == grid * REPEATS
    for one in timed:
        assert one.growths == -(-ROWS // one.r)
        assert one.rows_copied == sum(range(0, ROWS, one.r))
        assert one.rest > 0


def test_lengths_are_timed_in_turn_within_each_repeat(twins):
    model = twins("llama").ours
    lengths = (4, 16, 2 * model.context)
    timed = collected(copy_against_compute(model, lengths, REPEATS)).of(LengthTimed)
    assert [one.rows for one in timed] == list(lengths) * REPEATS
    assert [one.step is None for one in timed] == [False, False, True] * REPEATS


def test_the_same_drafts_are_rejected_in_every_repeat(twins):
    events = rejected_drafts(twins("llama").ours, ROWS, REPEATS, rejections=(0.0, 0.5))
    timed = collected(events).of(RejectionTimed)
    ways = list(dict.fromkeys(one.way for one in timed))
    assert len(ways) == 5
    order = [(rejection, way) for rejection in (0.0, 0.5) for way in ways]
    assert [(one.rejection, one.way) for one in timed] == order * REPEATS
    passes = [one.passes for one in timed]
    assert passes == passes[: len(order)] * REPEATS
    assert all(one.tokens == ROWS for one in timed)


def test_other_shapes_have_a_point_per_repeat(monkeypatch):
    def no_calibration(calibrator):
        yield Progressed(0.5, "calibrating")
        return Calibration(CostModel(1e-6, 1e-6, 1e-6), (), ())

    monkeypatch.setattr("eab.labs.bmc.measure.calibrate", no_calibration)
    monkeypatch.setattr("eab.labs.bmc.measure.SIZES", {"other": (1, 1, 8, 2)})
    monkeypatch.setattr("eab.labs.bmc.measure.SIZE_ROWS", ROWS)
    timed = collected(other_sizes(SHAPE, "ours", REPEATS)).of(SizeTimed)
    assert [one.name for one in timed] == ["ours"] * REPEATS + ["other"] * REPEATS
    for one in timed:
        assert one.predicted in dict(one.overheads)
        assert (min(dict(one.overheads)), max(dict(one.overheads))) == (1, ROWS)
