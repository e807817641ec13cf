"""The folder of a sweep keeps all finished cells, however the sweep ends."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from saying_model import saying_model

from eab import record
from eab.config import BranchingConfig
from eab.errors import RecordError
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.journal import JOURNAL, TABLE, read_cells
from eab.labs.tuning.measure import Measurement
from eab.labs.tuning.prompt_sets import TuningPrompt
from eab.labs.tuning.questions import Question
from eab.labs.tuning.sweeping import SweepStep, sweep
from eab.run import fold

MODEL = saying_model(3)
PROMPTS = [TuningPrompt(name, Question("0", (), {}, "")) for name in ("a", "b")]
GRID = Grid({"entropy_threshold": [0.2, 0.9]}, BranchingConfig(max_new_tokens=4), range(4))


def steps_of(
    folder: Path, grid: Grid = GRID, measurement: Measurement | None = None
) -> list[SweepStep]:
    return [*sweep(MODEL, PROMPTS, grid, folder=folder, measurement=measurement)]


def cells_of(folder: Path, grid: Grid = GRID) -> dict[str, Cell]:
    """All cells of a sweep by key, without their measured seconds."""
    cells = [cell for step in steps_of(folder, grid) for cell in step.cells]
    assert len(cells) == len({cell.key for cell in cells})
    return {cell.key: replace(cell, seconds=None) for cell in cells}


def test_the_journal_and_the_table_have_every_cell(tmp_path: Path) -> None:
    cells = [cell for step in steps_of(tmp_path) for cell in step.cells]
    assert {cell.key: cell for cell in read_cells(tmp_path)} == {cell.key: cell for cell in cells}
    table = pd.read_parquet(tmp_path / TABLE)
    assert table["key"].tolist() == [cell.key for cell in cells]
    assert table["tokens"].tolist() == [cell.tokens for cell in cells]
    assert len((tmp_path / JOURNAL).read_text().splitlines()) == 1 + len(PROMPTS) * 4, "per item"


def test_existing_cells_are_not_made_again_and_come_first(tmp_path: Path) -> None:
    first = steps_of(tmp_path)
    before = (tmp_path / JOURNAL).read_bytes()
    [only] = [step for step in steps_of(tmp_path) if step.cells]
    assert {*only.cells} == {cell for step in first for cell in step.cells}
    assert (only.done, only.total, only.resimulated) == (16, 16, first[-1].resimulated)
    assert (tmp_path / JOURNAL).read_bytes() == before


def test_a_larger_grid_in_the_same_folder_makes_only_the_new_cells(tmp_path: Path) -> None:
    steps_of(tmp_path)
    before = (tmp_path / JOURNAL).read_bytes()
    larger = Grid({"entropy_threshold": [0.2, 0.5, 0.9]}, GRID.base, range(5))
    first, *others = steps_of(tmp_path, larger)
    assert (first.done, first.total) == (16, 30)
    assert sum(len(step.cells) for step in others) == 14
    assert (tmp_path / JOURNAL).read_bytes().startswith(before)
    assert len(read_cells(tmp_path)) == 30


def test_a_stopped_sweep_can_be_resumed(tmp_path: Path) -> None:
    steps = sweep(MODEL, PROMPTS, GRID, folder=tmp_path)
    while not (step := next(steps)).done:
        pass
    steps.close()
    kept = read_cells(tmp_path)
    assert len(kept) == step.done < step.total
    assert len(pd.read_parquet(tmp_path / TABLE)) == len(kept), "also of what was stopped"
    assert len(cells_of(tmp_path)) == 16


@pytest.mark.parametrize("cut", [1, 40, 2_000, -2, -700])
def test_the_missing_cells_are_made_wherever_the_journal_is_cut(tmp_path: Path, cut: int) -> None:
    whole = cells_of(tmp_path / "whole")
    data = (tmp_path / "whole" / JOURNAL).read_bytes()
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / JOURNAL).write_bytes(data[:cut])
    assert cells_of(tmp_path / "cut") == whole
    text = (tmp_path / "cut" / JOURNAL).read_text()
    assert all(json.loads(line) for line in text.splitlines()), "half a line is gone"
    assert text.endswith("\n")


def test_runs_are_kept_on_request(tmp_path: Path) -> None:
    steps_of(tmp_path)
    keeping = Measurement(keep_runs=True)
    cells = [cell for step in steps_of(tmp_path, measurement=keeping) for cell in step.cells]
    assert len(cells) == 16, "cells without a run are made again"
    for cell in cells:
        run = fold(record.load(tmp_path / cell.run_file))
        assert (len(run.leaves()), run.is_what_if) == (cell.paths, cell.made == "resimulated")
    (tmp_path / str(cells[0].run_file)).unlink()
    first, *others = steps_of(tmp_path, measurement=keeping)
    assert first.done == 15
    assert [cell.key for step in others for cell in step.cells] == [cells[0].key]


def test_a_journal_without_brier_scores_can_be_continued(tmp_path: Path) -> None:
    whole = steps_of(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / JOURNAL).read_text().splitlines()]
    for item in lines[1:]:
        for row in item["cells"]:
            del row["brier"]
    (tmp_path / JOURNAL).write_text("".join(f"{json.dumps(line)}\n" for line in lines[:-1]))
    first, *others = steps_of(tmp_path)
    assert {cell.brier for cell in first.cells} == {None}
    assert first.done < whole[-1].done == others[-1].done
    assert pd.read_parquet(tmp_path / TABLE)["brier"].isna().all(), "no right answer is known"


def test_another_model_or_rule_is_refused_with_an_explanation(tmp_path: Path) -> None:
    steps_of(tmp_path)
    before = (tmp_path / JOURNAL).read_bytes()
    other = saying_model(3)
    other.card = replace(other.card, name="other")
    with pytest.raises(RecordError, match="contains a sweep with another model"):
        next(sweep(other, PROMPTS, GRID, folder=tmp_path))
    with pytest.raises(RecordError, match="another part of the answers and same-answer rule"):
        steps_of(tmp_path, measurement=Measurement("text", "exact"))
    assert (tmp_path / JOURNAL).read_bytes() == before


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("run_file", "../../etc/passwd", "run_file '../../etc/passwd'; that is not allowed"),
        ("key", "../a", "key: expected str matching regex '^[0-9a-f]{24}$', got '../a'"),
        ("seconds", True, "seconds: expected float | null, got True"),
        ("made", "guessed", 'made: expected one of: "run", "resimulated", got'),
        ("max_paths", 0, "a value that is not allowed: the setting max_paths is 0"),
    ],
)
def test_a_damaged_cell_is_named_with_its_line(
    tmp_path: Path, name: str, value: object, words: str
) -> None:
    steps_of(tmp_path)
    lines = (tmp_path / JOURNAL).read_text().splitlines()
    item = json.loads(lines[2])
    item["cells"][0][name] = value
    lines[2] = json.dumps(item)
    (tmp_path / JOURNAL).write_text("\n".join(lines) + "\n")
    with pytest.raises(RecordError) as caught:
        steps_of(tmp_path)
    assert f"{tmp_path / JOURNAL}, line 3: " in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("line", ["{", "[]", '{"cells": [3]}', "[" * 9999])
def test_a_foreign_line_in_the_journal_is_named(tmp_path: Path, line: str) -> None:
    steps_of(tmp_path)
    with (tmp_path / JOURNAL).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(RecordError, match=r"line 10.*delete the line to run its cells again"):
        steps_of(tmp_path)


def test_a_file_that_is_not_a_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="contains no sweep"):
        read_cells(tmp_path)
    (tmp_path / JOURNAL).write_text('{"a": 1}\n')
    with pytest.raises(RecordError, match="is not a journal of a sweep of this version"):
        steps_of(tmp_path)
    assert (tmp_path / JOURNAL).read_text() == '{"a": 1}\n'
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="cannot be created"):
        steps_of(tmp_path / "file" / "sweep")
