"""The folder of a sweep keeps all finished cells, however the sweep ends."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from msgspec import structs
from saying_model import saying_model
from tiny_models import tiny, word_tokenizer

from eab.api.arguments import language_model
from eab.config import BranchingConfig
from eab.errors import RecordError
from eab.labs.tuning.grid import Cell, Grid
from eab.labs.tuning.measure import Measurement
from eab.labs.tuning.prompt_sets import Question, TuningPrompt
from eab.labs.tuning.report import JOURNAL, TABLE, read_cells
from eab.labs.tuning.sweeping import SweepStep, sweep
from eab.run import fold, record

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
    assert len((tmp_path / JOURNAL).read_text().splitlines()) == 1 + len(cells)


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


def test_another_model_or_rule_is_refused_with_an_explanation(tmp_path: Path) -> None:
    steps_of(tmp_path)
    before = (tmp_path / JOURNAL).read_bytes()
    other = saying_model(3)
    other.card = structs.replace(other.card, name="other")
    with pytest.raises(RecordError, match="contains a sweep with another model"):
        next(sweep(other, PROMPTS, GRID, folder=tmp_path))
    with pytest.raises(RecordError, match="part of the answers or same-answer rule"):
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
    item[name] = value
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
    with pytest.raises(RecordError, match=r"line \d+: .*delete the line to run its cell again"):
        steps_of(tmp_path)


def test_a_file_that_is_not_a_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="contains no sweep"):
        read_cells(tmp_path)
    (tmp_path / JOURNAL).write_text('{"a": 1}\n')
    with pytest.raises(RecordError, match="another version"):
        steps_of(tmp_path)
    assert (tmp_path / JOURNAL).read_text() == '{"a": 1}\n'
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="cannot be created"):
        steps_of(tmp_path / "file" / "sweep")


def test_the_first_cells_are_on_disk_long_before_the_last_runs_begin(tmp_path: Path) -> None:
    grid = Grid({}, BranchingConfig(max_paths=8, max_new_tokens=12), range(24))
    passes = 0
    for step in sweep(saying_model(12), PROMPTS, grid, folder=tmp_path):
        passes += 1
        if step.cells:
            break
    assert passes < 20
    assert len(read_cells(tmp_path)) >= 1


GIVEN = Grid({}, BranchingConfig(max_paths=2, max_new_tokens=3))


def sweep_of(given: Any, folder: Path) -> list[Cell]:
    model = language_model((given, word_tokenizer()))
    prompts = [TuningPrompt("a", Question("w4 w9 w2", (), {}, ""))]
    return [cell for step in sweep(model, prompts, GIVEN, folder=folder) for cell in step.cells]


def nudged(model: Any) -> Any:
    with torch.no_grad():
        model.lm_head.weight.data[3, 5] += 1e-3
    return model


def with_adapter(model: Any) -> Any:
    peft = pytest.importorskip("peft")
    return peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"]))


def without_adapter(model: Any) -> Any:
    adapted = with_adapter(model)
    adapted.base_model.disable_adapter_layers()
    return adapted


def hooked(model: Any) -> Any:
    model.model.layers[0].register_forward_hook(lambda _, __, out: out * 1.5)
    return model


@pytest.mark.filterwarnings("ignore:::peft", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("change", [nudged, with_adapter, without_adapter, hooked])
@pytest.mark.parametrize("first", [lambda model: model, with_adapter, hooked])
def test_a_folder_never_returns_the_cells_of_another_given_model(tmp_path, change, first) -> None:
    made = sweep_of(first(tiny("LlamaConfig")), tmp_path)
    if first is change is with_adapter:
        assert sweep_of(change(tiny("LlamaConfig")), tmp_path) == made, "the same adapter"
        return
    with pytest.raises(RecordError, match="another model"):
        sweep_of(change(tiny("LlamaConfig")), tmp_path)
    with pytest.raises(RecordError, match="another model"):
        sweep_of(tiny("LlamaConfig", seed=1), tmp_path)


@pytest.mark.parametrize("kind", ["LlamaConfig", "MambaConfig", "GPT2Config"])
def test_the_same_given_model_goes_on_in_its_folder(tmp_path: Path, kind: str) -> None:
    made = sweep_of(tiny(kind), tmp_path)
    assert sweep_of(tiny(kind), tmp_path) == made
