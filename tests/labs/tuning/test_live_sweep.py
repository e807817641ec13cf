"""A sweep as a page follows it: its beginning, all cells, progress up to the end, and failures in
words.
"""

from eab.config import BranchingConfig
from eab.events import Progressed, RunEnded
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.live_sweep import report_sweep
from eab.labs.tuning.prompt_sets import TuningPrompt
from eab.labs.tuning.questions import Question
from eab.labs.tuning.report import Began, TuningReport
from eab.models.huggingface import HuggingFaceModel

COIN = TuningPrompt("coin", Question("I tossed a coin and it landed on", (), {}, ""))
LONG = TuningPrompt("long", Question("word " * 5000, (), {}, ""))
GRID = Grid({"entropy_threshold": [0.3, 1.0]}, BranchingConfig(max_new_tokens=4), (1, 2))


def test_a_sweep_begins_tells_every_cell_and_ends(embedded: HuggingFaceModel) -> None:
    events = list(report_sweep(embedded, [COIN], GRID))
    began, *rest = events
    assert isinstance(began, Began)
    assert (began.model, began.cells) == (embedded.card.full_name, 4)
    assert sum(isinstance(one, Began) for one in events) == 1
    assert sum(isinstance(one, Cell) for one in events) == 4
    assert events[-1] == RunEnded(0, "finished")
    progress = [one for one in rest if isinstance(one, Progressed)]
    assert [one.share for one in progress] == sorted(one.share for one in progress)
    assert progress[-1].share == 1.0
    assert progress[-1].words.startswith("4 of 4 cells")


def test_cells_that_fail_are_told_and_the_others_stay(embedded: HuggingFaceModel) -> None:
    report = TuningReport()
    for event in report_sweep(embedded, [LONG, COIN], GRID):
        report.apply(event)
    assert len(report.cells) == 4
    assert not report.complete
    assert report.ended is not None
    assert report.ended.reason == "failed"
    assert "cells failed, the first one: " in report.ended.message
    assert "long" in report.ended.message
