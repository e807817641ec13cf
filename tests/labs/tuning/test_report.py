"""Sweeps as files: what was written is read, and anything else is refused with an explanation."""

import gzip
import json
import math
from typing import Any

import pytest
from cells import cell
from hypothesis import given, settings
from hypothesis import strategies as st

from eab.errors import RecordError
from eab.events import RunEnded
from eab.labs.tuning import pictures as figures
from eab.labs.tuning import sentences as tuning_words
from eab.labs.tuning.cell import COLUMNS, cells_table
from eab.labs.tuning.frontier import setting_points
from eab.labs.tuning.quantities import COSTS, GAINS, Quantity
from eab.labs.tuning.report import MAX_BYTES, Began, TuningReport, dumps, loads


def report() -> TuningReport:
    made = TuningReport()
    for event in (Began("tiny", "float32", "a machine", 2), cell(0.5, 1), cell(0.9, 2, "b")):
        made.apply(event)
    made.apply(RunEnded(0, "finished"))
    return made


def changed(**parts: object) -> bytes:
    content = json.loads(gzip.decompress(dumps(report())))
    return gzip.compress(json.dumps(content | parts).encode())


def test_a_sweep_from_before_the_brier_score_is_opened_without_it() -> None:
    content = json.loads(gzip.decompress(dumps(report())))
    place = content["columns"].index("brier")
    rows = [*content["cells"], content["columns"]]
    for row in rows:
        del row[place]
    old = loads(gzip.compress(json.dumps(content).encode()), "an old sweep")
    assert old.cells == report().cells
    assert {one.brier for one in old.cells} == {None}


def test_what_has_not_begun_is_not_written() -> None:
    assert TuningReport().model_name == ""
    with pytest.raises(RecordError, match="has not started"):
        dumps(TuningReport())


HEAD = {"model": "a", "dtype": "b", "machine": "c", "cells": 3}


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(b"[" * 100_000),
        changed(columns=None),
        changed(began={"model": 1}),
        changed(began=[]),
        changed(began=HEAD | {"machine": "\ud800"}),
        changed(began=HEAD | {"cells": 10**400}),
        changed(cells=[[]] * 20_001),
        changed(cells=[0] * 2_000_001),
        changed(began=HEAD | {"model": 1}),
        gzip.compress(bytes(MAX_BYTES + 1)),
    ],
    ids=range(10),
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(RecordError, match="sweep"):
        loads(data, "a sweep")


@given(st.binary(max_size=60))
def test_no_bytes_crash_it(data: bytes) -> None:
    with pytest.raises(RecordError):
        loads(data, "bytes")


# In place of a value of a cell or of the head
NUMBERS = [0, -1, 2, 0.5, 1e300, -1e300, math.nan, math.inf, 10**20, 10**400]
STRANGE = st.sampled_from([None, True, *NUMBERS, "", "x", "�", "x" * 200_001, [], {}])


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    """The JSON of a sweep of two settings, two prompts and two seeds."""
    made = TuningReport()
    cells = [
        cell(threshold, seed, prompt, seconds=0.5, distribution_error=0.1, correct=0.5)
        for threshold in (0.5, 0.9)
        for prompt in "ab"
        for seed in (1, 2)
    ]
    for event in (Began("tiny", "float32", "a machine", 8), *cells, RunEnded(0, "finished")):
        made.apply(event)
    return dict(json.loads(gzip.decompress(dumps(made))))


def draw_everything(found: TuningReport, cost: Quantity, gain: Quantity) -> None:
    points = setting_points(found.cells, cost, gain)
    if points:
        figures.pareto_figure(points, cost, gain).to_json()
        figures.parallel_figure(points, ["entropy_threshold"], cost, gain).to_json()
        tuning_words.settings_table(points, cost, gain).to_csv()
        tuning_words.pareto_sentence(points, cost, gain).encode()
        tuning_words.heat_sentence(points, gain).encode()
    tuning_words.saving_sentence(found.cells).encode()
    tuning_words.over_words(points).encode()
    cells_table(found.cells).to_parquet(None)
    dumps(found)


@settings(max_examples=150)
@given(
    in_cells=st.lists(
        st.tuples(st.integers(0, 7), st.integers(0, len(COLUMNS) - 1), STRANGE), max_size=3
    ),
    in_head=st.dictionaries(st.sampled_from(["model", "dtype", "machine", "cells"]), STRANGE),
    cost=st.sampled_from([*COSTS.values()]),
    gain=st.sampled_from([*GAINS.values()]),
)
def test_a_changed_sweep_is_drawn_or_refused_in_few_words(
    content: dict[str, Any],
    in_cells: list[tuple[int, int, Any]],
    in_head: dict[str, Any],
    cost: Quantity,
    gain: Quantity,
) -> None:
    rows = [[*row] for row in content["cells"]]
    for number, column, value in in_cells:
        rows[number][column] = value
    strange = content | {"cells": rows, "began": content["began"] | in_head}
    said = ""
    try:
        draw_everything(loads(gzip.compress(json.dumps(strange).encode()), "a sweep"), cost, gain)
    except RecordError as error:
        said = str(error)
    assert len(said.encode()) < 1000
