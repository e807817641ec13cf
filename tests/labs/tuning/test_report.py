"""Files of sweeps: written files can be read, and all others are refused with an explanation."""

import gzip
import json
import math
from typing import Any

import pytest
from cells import cell, plan
from hypothesis import given, settings
from hypothesis import strategies as st

from eab.config import BranchingConfig
from eab.errors import RecordError
from eab.labs.measurement import MAX_BYTES
from eab.labs.tuning import pictures
from eab.labs.tuning.frontier import setting_points
from eab.labs.tuning.grid import COLUMNS, COSTS, GAINS, Grid, Quantity, cells_table
from eab.labs.tuning.prompt_sets import Question, TuningPrompt
from eab.labs.tuning.report import TuningReport, dumps, loads, plan_of, sweep_began
from eab.run.events import RunEnded


def report() -> TuningReport:
    began = sweep_began("tiny", "float32", "a machine", plan(2))
    cells = [cell(0.5, 1), cell(0.9, 2, "b")]
    return TuningReport().collect([began, *cells, RunEnded(0, "finished")])


def content_of(made: TuningReport) -> dict[str, Any]:
    """The JSON in the file of this sweep."""
    return dict(json.loads(gzip.decompress(dumps(made))))


def packed(content: dict[str, Any]) -> bytes:
    return gzip.compress(json.dumps(content).encode())


def opened(content: dict[str, Any]) -> TuningReport:
    """The sweep from a file with this JSON."""
    return loads(packed(content), "a sweep")


def changed(**parts: object) -> bytes:
    return packed(content_of(report()) | parts)


def stopped(cells: int = 1) -> TuningReport:
    """A sweep of four cells that was stopped after this many."""
    grid = Grid({"entropy_threshold": (0.5, 0.9)}, BranchingConfig(), range(2))
    prompts = [TuningPrompt("a", Question("A coin", (), {"heads.": 1.0}, "coins"))]
    began = sweep_began("tiny", "float32", "a machine", plan_of(prompts, grid))
    made = [cell(0.5, seed) for seed in range(cells)]
    return TuningReport().collect([began, *made, RunEnded(0, "stopped")])


def test_a_stopped_sweep_and_its_file_know_what_is_missing() -> None:
    found = loads(dumps(stopped()), "half a sweep")
    assert (found.made, found.missing, found.ended) == ("1 of 4 cells", 3, RunEnded(0, "stopped"))
    assert (found.began.model, found.began.machine) == ("tiny", "a machine")
    assert found.plan == stopped().plan
    assert found.plan.cells == 4
    assert loads(dumps(stopped(4)), "a sweep").missing == 0


def planned(**change: object) -> dict[str, Any]:
    """The start of a sweep of one cell, with these changes in its plan."""
    asked = [{"id": "a", "question": {"prompt": "A coin", "distribution": {"heads.": 1.0}}}]
    return {"plan": {"grid": {}, "prompts": asked} | change}


def test_too_many_cells_are_refused_whatever_number_the_file_claims() -> None:
    content = content_of(report())
    for name, column in content["tables"]["cells"].items():
        content["tables"]["cells"][name] = column[:1] * 20_001
    with pytest.raises(RecordError, match="too many cells"):
        opened(content)


def test_a_file_with_more_cells_than_its_plan_is_refused() -> None:
    content = content_of(stopped(2))
    content["began"]["about"] |= planned()
    with pytest.raises(RecordError, match="too many cells"):
        opened(content)


HEAD = {"model": "a", "dtype": "b", "machine": "c", "lab": "sweep", "about": planned()}


@pytest.mark.parametrize(
    "data",
    [
        changed(tables=None),
        changed(began=HEAD | {"machine": "\ud800"}),
        changed(began=HEAD | {"about": planned() | {"known": 10**400}}),
        changed(began=HEAD | {"lab": "bmc"}),
        changed(tables={"cells": {"key": [0] * 2_000_001}}),
        gzip.compress(bytes(MAX_BYTES + 1)),
    ],
    ids=["no tables", "no text", "a huge number", "another lab", "many cells", "many bytes"],
)
def test_a_hostile_file_is_refused(data: bytes) -> None:
    with pytest.raises(RecordError, match="sweep"):
        loads(data, "a sweep")


# Replacements for a value in a cell or in the head
NUMBERS = [0, -1, 2, 0.5, 1e300, -1e300, math.nan, math.inf, 10**20, 10**400]
STRANGE = st.sampled_from([None, True, *NUMBERS, "", "x", "�", "x" * 200_001, [], {}])


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    """The JSON of a sweep of two settings, two prompts and two seeds."""
    cells = [
        cell(threshold, seed, prompt, seconds=0.5, distribution_error=0.1, correct=0.5)
        for threshold in (0.5, 0.9)
        for prompt in "ab"
        for seed in (1, 2)
    ]
    began = sweep_began("tiny", "float32", "a machine", plan(8))
    return content_of(TuningReport().collect([began, *cells, RunEnded(0, "finished")]))


def draw_everything(found: TuningReport, cost: Quantity, gain: Quantity) -> None:
    points = setting_points(found.cells, cost, gain)
    if points:
        pictures.heat_figure(points, gain, "entropy_threshold", "").to_json()
        pictures.setting_rows(points, cost, gain)
        pictures.settings_table(points, cost, gain).to_csv()
        pictures.answer_sentence(points, gain).encode()
    pictures.sweep_measures(points, found.cells)
    cells_table(found.cells).to_parquet(None)
    dumps(found)


@settings(max_examples=150)
@given(
    in_cells=st.lists(
        st.tuples(st.integers(0, 7), st.integers(0, len(COLUMNS) - 1), STRANGE), max_size=3
    ),
    in_head=st.dictionaries(st.sampled_from(["model", "dtype", "machine", "known"]), STRANGE),
    cost=st.sampled_from([*COSTS.values()]),
    gain=st.sampled_from([*GAINS.values()]),
)
def test_a_corrupted_sweep_is_drawn_or_refused_with_a_short_message(
    content: dict[str, Any],
    in_cells: list[tuple[int, int, Any]],
    in_head: dict[str, Any],
    cost: Quantity,
    gain: Quantity,
) -> None:
    columns = {name: [*column] for name, column in content["tables"]["cells"].items()}
    for number, column, value in in_cells:
        columns[COLUMNS[column]][number] = value
    about = content["began"]["about"] | {name: in_head[name] for name in in_head if name == "known"}
    head = {name: value for name, value in in_head.items() if name != "known"} | {"about": about}
    strange = content | {"tables": {"cells": columns}, "began": content["began"] | head}
    said = ""
    try:
        draw_everything(opened(strange), cost, gain)
    except RecordError as error:
        said = str(error)
    assert len(said.encode()) < 1000
