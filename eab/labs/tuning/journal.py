"""The folder of a sweep: a journal of finished items, a table of all cells, and run files.

Each line is flushed to disk before the next is written, so a crash loses at most the current items.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from eab.errors import RecordError
from eab.events import ModelCard
from eab.formatting import listed, quoted
from eab.labs.tuning.cell import Cell, cell_from_row, cells_table
from eab.labs.tuning.measure import Measurement
from eab.labs.tuning.work_items import Outcome, model_json
from eab.record.whole_file import cannot_be_written, make_folder, save_whole, write_table

JOURNAL: Final = "journal.jsonl"
TABLE: Final = "cells.parquet"
_FORMAT: Final = {"format": "eab-sweep", "version": 1}


class Journal:
    """The finished cells of one model in one folder; RecordError if damaged or of another model."""

    def __init__(self, folder: Path, card: ModelCard, measurement: Measurement) -> None:
        make_folder(folder)
        self.folder = folder
        self._needs_runs = measurement.keep_runs
        self._path = folder / JOURNAL
        header = _FORMAT | {
            "model": model_json(asdict(card)),
            "part": measurement.part,
            "same_answer": measurement.same_answer,
        }
        lines = _whole_lines(self._path)
        self._cells: dict[str, Cell] = {}
        if lines:
            _check_header(_parsed(lines[0], f"{self._path}, line 1"), header, folder)
        for number, line in enumerate(lines[1:], start=2):
            for cell in _cells(line, f"{self._path}, line {number}"):
                self._cells[cell.key] = cell
        try:
            self._file = self._path.open("ab")
            self._file.truncate(sum(len(line) + 1 for line in lines))
        except OSError as error:
            raise cannot_be_written(self._path, error) from error
        if not lines:
            self._append(header)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.save_table()

    @property
    def known(self) -> dict[str, Cell]:
        """Cells to skip, by key; if runs are kept, only cells whose run file exists."""
        return {
            key: cell
            for key, cell in self._cells.items()
            if not self._needs_runs
            or (cell.run_file is not None and (self.folder / cell.run_file).is_file())
        }

    def add(self, outcome: Outcome) -> None:
        """Record a finished item; an item without cells is not recorded, so it will be retried."""
        if not outcome.cells:
            return
        for name, data in outcome.runs.items():
            save_whole(self.folder / name, data)
        rows = [cell.row() for cell in outcome.cells]
        self._append({"cells": rows})
        self._cells |= {cell.key: cell for cell in outcome.cells}

    def save_table(self) -> None:
        """Write the table of all cells if there are any; RecordError on failure."""
        if self._cells:
            write_table(self.folder / TABLE, cells_table(self._cells.values()))

    def _append(self, value: dict[str, Any]) -> None:
        text = json.dumps(value, ensure_ascii=True, allow_nan=False)
        try:
            self._file.write(text.encode("ascii") + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise cannot_be_written(self._path, error) from error


def read_cells(folder: Path) -> list[Cell]:
    """The finished cells in a folder, even during its sweep; RecordError if damaged."""
    path = folder / JOURNAL
    lines = _whole_lines(path)
    if not lines:
        raise RecordError(
            f"the folder {folder} contains no sweep; choose a folder that eab sweep has written"
        )
    cells = [
        cell
        for number, line in enumerate(lines[1:], start=2)
        for cell in _cells(line, f"{path}, line {number}")
    ]
    return [*{cell.key: cell for cell in cells}.values()]


def _whole_lines(path: Path) -> list[bytes]:
    """The complete lines; a crash may leave the last line incomplete."""
    try:
        return path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}") from error


def _check_header(stored: dict[str, Any], header: dict[str, Any], folder: Path) -> None:
    if {name: stored.get(name) for name in _FORMAT} != _FORMAT:
        raise RecordError(
            f"{folder / JOURNAL} is not a journal of a sweep of this version. Choose another folder"
        )
    model = stored.get("model")
    stored = stored | {"model": model_json(model) if isinstance(model, dict) else model}
    names = {"model": "model", "part": "part of the answers", "same_answer": "same-answer rule"}
    other = [words for name, words in names.items() if stored.get(name) != header[name]]
    if other:
        raise RecordError(
            f"the folder {folder} contains a sweep with another {listed(other)}. Choose another "
            "folder, or delete this one to start again"
        )


def _cells(line: bytes, where: str) -> list[Cell]:
    rows = _parsed(line, where).get("cells")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise RecordError(f"{where} has no list of cells; {_REMEDY}")
    try:
        return [cell_from_row(row) for row in rows]
    except RecordError as error:
        raise RecordError(f"{where}: {error}; {_REMEDY}") from error


_REMEDY: Final = "delete the line to run its cells again"


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where} is not JSON ({error}); {_REMEDY}") from error
    if not isinstance(value, dict):
        raise RecordError(f"{where} is {quoted(value)}; {_REMEDY}")
    return value
