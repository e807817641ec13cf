"""Every cell of a sweep equals that of its run alone, whether the model made it or not."""

import math
import pickle
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from saying_model import exact_answers, saying_model

from eab import Run
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.models.base import LanguageModel
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.request import Request
from eab.errors import ConfigError, RecordError
from eab.labs.tuning.frontier import varying
from eab.labs.tuning.grid import Cell, Grid, cell_from_row, cells_table
from eab.labs.tuning.measure import Measurement
from eab.labs.tuning.prompt_sets import Question, TuningPrompt, labelled_prompt
from eab.labs.tuning.report import TuningReport
from eab.labs.tuning.sweeping import cell_key, report_sweep, sweep
from eab.run import fold

HALVES = {"heads.": 0.5, "tails.": 0.5}
COIN = TuningPrompt(
    "coin", Question("I tossed a coin and it landed on", (), HALVES, "fixed sentences")
)
CAPITAL = TuningPrompt("capital", Question("The capital of France is", ("Paris",), {}, "capitals"))
STORY = TuningPrompt("story", Question("Once upon a time", (), {}, ""))
SHORT = BranchingConfig(max_new_tokens=6)


def cells_of(
    model: LanguageModel,
    prompts: Sequence[TuningPrompt],
    grid: Grid,
    measurement: Measurement | None = None,
) -> list[Cell]:
    return [
        cell for step in sweep(model, prompts, grid, measurement=measurement) for cell in step.cells
    ]


def cell_of_each(model: LanguageModel, prompts: Sequence[TuningPrompt], grid: Grid) -> list[Cell]:
    """The only cell of each prompt, in the order of the prompts."""
    by_id = {cell.prompt_id: cell for cell in cells_of(model, prompts, grid)}
    return [by_id[prompt.id] for prompt in prompts]


def alone(model: LanguageModel, prompt: TuningPrompt, cell: Cell) -> Cell:
    """The cell of the same run alone, with the time and the run file of the given cell."""
    run = fold(event_stream(model, Request(prompt.question.prompt, cell.config)))
    key = cell_key(model.card, prompt, cell.config)
    made = Measurement().cell(
        key, prompt, cell.config, run, seconds=cell.seconds, run_file=cell.run_file
    )
    assert made.made == cell.made
    return made


def assert_same_cells(cell: Cell, other: Cell, tolerance: float) -> None:
    for name, value in cell.row().items():
        wanted = other.row()[name]
        if isinstance(value, float):
            assert value == pytest.approx(wanted, abs=tolerance), name
        else:
            assert value == wanted, name


@pytest.mark.slow
@given(
    seed=st.integers(0, 50),
    thresholds=st.lists(st.floats(0, 2.2), min_size=2, max_size=3, unique=True),
    unit=st.sampled_from(["nats", "normalised", "rank"]),
    max_paths=st.integers(1, 24),
    policy=st.sampled_from(["fair", "independent", "original", "greedy"]),
    min_fork_weight=st.sampled_from([0.0, 0.05]),
    cache=st.sampled_from(["tree", "concat-cow"]),
)
@settings(max_examples=5)
def test_a_resimulated_cell_equals_the_cell_that_the_model_makes(
    seed: int,
    thresholds: list[float],
    unit: str,
    max_paths: int,
    policy: str,
    min_fork_weight: float,
    cache: str,
) -> None:
    model = saying_model(seed)
    base = BranchingConfig.from_settings(
        {
            "max_new_tokens": 4,
            "threshold_unit": unit,
            "policy": policy,
            "min_fork_weight": min_fork_weight,
            "cache": cache,
            "max_paths": max_paths,
            "entropy_threshold": 1.0,
        }
    )
    in_unit = {"nats": thresholds, "normalised": [value / 2.2 for value in thresholds]}
    values = sorted({*in_unit.get(unit, [1 + round(value) for value in thresholds])})
    grid = Grid({"entropy_threshold": values, "r": [1, 4]}, base, [seed, 99])
    prompt = TuningPrompt("p", Question("0", (), exact_answers(model, 4), ""))
    cells = cells_of(model, [prompt], grid)
    assert len(cells) == len(grid.configs()) * len(set(grid.seeds)) == len({c.key for c in cells})
    for cell in cells:
        assert_same_cells(cell, alone(model, prompt, cell), 1e-9)


def test_cells_that_share_passes_equal_those_of_runs_alone(embedded: HuggingFaceModel) -> None:
    grid = Grid(
        {"entropy_threshold": [0.3, 1.2], "policy": ["fair", "independent"]}, SHORT, range(3)
    )
    prompts = [COIN, CAPITAL, STORY]
    cells = cells_of(embedded, prompts, grid)
    assert len(cells) == 3 * 3 * 3
    by_id = {prompt.id: prompt for prompt in prompts}
    for cell in cells:
        assert_same_cells(cell, alone(embedded, by_id[cell.prompt_id], cell), 1e-3)


def test_cells_are_scored_by_the_known_answers_of_their_prompt(embedded: HuggingFaceModel) -> None:
    coin, capital, story = cell_of_each(embedded, [COIN, CAPITAL, STORY], Grid(base=SHORT))
    assert coin.distribution_error < 0.1
    assert (coin.correct, coin.group) == (None, "fixed sentences")
    assert capital.distribution_error is None
    assert capital.correct > 0.9
    assert (story.distribution_error, story.correct) == (None, None)
    assert (story.brier, coin.brier) == (None, None)


def test_a_label_is_a_gain_with_its_bounds_and_another_label_makes_other_cells(
    embedded: HuggingFaceModel,
) -> None:
    heads = labelled_prompt(COIN, " HEADS ")
    [cell] = cells_of(embedded, [heads], Grid(base=SHORT))
    run = fold(event_stream(embedded, Request(COIN.question.prompt, cell.config)))
    exactly = Run(run).probability(re.compile("heads", re.IGNORECASE))
    assert cell.label == pytest.approx(exactly.estimate)
    assert cell.label_width == pytest.approx(exactly.high - exactly.low)
    assert 0.3 < cell.label < 0.7
    [plain] = cells_of(embedded, [COIN], Grid(base=SHORT))
    assert (plain.label, plain.label_width) == (None, None)
    assert plain.key != cell.key
    assert cell_from_row(cell.row()) == cell
    with pytest.raises(ConfigError, match="at most 500"):
        labelled_prompt(COIN, "x" * 501)


def test_the_distribution_error_by_hand(embedded: HuggingFaceModel) -> None:
    """A single text has weight 1: off by 0.5 for heads and for tails, and by 0 for the rest."""
    greedy = replace(SHORT, policy="greedy")
    other = TuningPrompt("edge", replace(COIN.question, distribution={"an edge.": 1.0}))
    coin, edge = cell_of_each(embedded, [COIN, other], Grid(base=greedy))
    assert coin.distribution_error == pytest.approx(math.sqrt(2 * 0.5**2 / 3))
    assert edge.distribution_error == pytest.approx(1.0), "the edge never, something else always"


def test_the_steps_of_a_sweep_report_its_progress(embedded: HuggingFaceModel) -> None:
    grid = Grid({"entropy_threshold": [0.3, 0.65, 1.2]}, SHORT, range(2))
    steps = [*sweep(embedded, [COIN, STORY], grid)]
    first, last = steps[0], steps[-1]
    assert (first.done, first.total, first.seconds_left) == (0, 12, None)
    assert (last.done, last.failed, last.seconds_left) == (12, 0, 0.0)
    assert sum(len(step.cells) for step in steps) == 12
    made = [cell.made for step in steps for cell in step.cells]
    assert last.resimulated == made.count("resimulated") >= 6
    assert all(step.seconds_left is not None for step in steps[1:] if step.done)


def test_a_sweep_needs_prompts(embedded: HuggingFaceModel) -> None:
    with pytest.raises(ConfigError, match="there are no prompts"):
        next(sweep(embedded, [], Grid()))


def test_cells_survive_a_round_trip_as_rows_and_form_a_table(embedded: HuggingFaceModel) -> None:
    cells = cells_of(embedded, [COIN], Grid({"r": [4, "auto"], "max_paths": [4, 8]}, SHORT))
    assert [cell_from_row(cell.row()) for cell in cells] == cells
    table = cells_table(cells)
    assert table["r"].tolist() == [str(cell.config.r) for cell in cells]
    assert table["max_paths"].tolist() == [cell.config.max_paths for cell in cells]
    assert varying(cell.config for cell in cells) == ["max_paths", "r"]
    assert len({cell.key for cell in cells}) == 4


def test_a_resumed_sweep_makes_only_the_missing_cells(
    embedded: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = Grid({"entropy_threshold": (0.3, 0.9)}, SHORT, (1, 2, 3))
    whole = cells_of(embedded, [COIN, STORY], grid)
    some = TuningReport()
    for event in report_sweep(embedded, [COIN, STORY], grid):
        some.apply(event)
        if len(some.cells) >= 5:
            break
    plan = some.plan
    made: list[Cell] = []
    of_one_run = Measurement.cell

    def counting(*given: Any, **more: Any) -> Cell:
        made.append(of_one_run(*given, **more))
        return made[-1]

    monkeypatch.setattr(Measurement, "cell", counting)
    report = TuningReport().collect(report_sweep(embedded, plan.prompts, plan.grid, some.cells))
    assert report.complete
    assert [one for one in report.cells if one in some.cells] == report.cells[: len(some.cells)]
    assert len(made) == len(whole) - len(some.cells), "nothing is made again"
    assert {one.key: one.paths for one in report.cells} == {one.key: one.paths for one in whole}


def test_cells_of_another_model_are_refused(
    embedded: HuggingFaceModel,
) -> None:
    grid = Grid({}, SHORT, (1, 2))
    [first, _] = cells_of(embedded, [COIN], grid)
    other = replace(first, key="0" * 24)
    with pytest.raises(RecordError, match="another model or number format"):
        list(report_sweep(embedded, [COIN], grid, [other]))


def test_a_sweep_reports_failed_cells_and_keeps_the_others(
    embedded: HuggingFaceModel,
) -> None:
    report, long = TuningReport(), TuningPrompt("long", Question("word " * 5000, (), {}, ""))
    for event in report_sweep(embedded, [long, COIN], Grid(base=SHORT, seeds=(1, 2))):
        report.apply(event)
    assert (report.began.model, report.plan.cells) == (embedded.card.full_name, 4)
    assert len(report.cells) == 2
    assert report.ended.reason == "failed"
    assert "2 cells failed; the first: long, seed 1: the prompt has" in report.ended.message
    assert report.progress.words.startswith("2 of 4 cells")


def test_a_cell_has_the_same_key_in_another_process() -> None:
    card, prompt = saying_model(3).card, TuningPrompt("a", Question("0", (), {}, ""))
    sent = pickle.loads(pickle.dumps((card, prompt, BranchingConfig())))
    assert cell_key(*sent) == cell_key(card, prompt, BranchingConfig())
