"""The folder of a sweep: a file that grows by a line per finished cell, a table of all cells at the
end, and run files.

Each line is flushed to disk before the next is written, so a crash loses at most the current items.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import structs

from eab.errors import RecordError
from eab.events import ModelCard
from eab.formatting import listed
from eab.labs.tuning.cell import Cell, cell_from_row, cells_table
from eab.labs.tuning.measure import Measurement
from eab.record.files import cannot_be_written, make_folder, save_whole, write_table

JOURNAL: Final = "cells.jsonl"
TABLE: Final = "cells.parquet"
_FORMAT: Final = {"format": "eab-sweep", "version": 3}


class Journal:
    """The finished cells of one model in one folder; RecordError if damaged or of another model."""

    def __init__(self, folder: Path, card: ModelCard, measurement: Measurement) -> None:
        make_folder(folder)
        self.folder = folder
        self._needs_runs = measurement.keep_runs
        self._path = folder / JOURNAL
        about = {"part": measurement.part, "same_answer": measurement.same_answer}
        head = _FORMAT | {"model": json.loads(msgspec.json.encode(structs.asdict(card)))} | about
        lines = _whole_lines(self._path)
        if lines:
            _check_head(lines[0], head, folder)
        self._cells = {cell.key: cell for cell in _cells(lines[1:], self._path)}
        try:
            self._file = self._path.open("ab")
            self._file.truncate(sum(len(line) + 1 for line in lines))
        except OSError as error:
            raise cannot_be_written(self._path, error) from error
        if not lines:
            self._append([head])

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if self._cells:
            write_table(self.folder / TABLE, cells_table(self._cells.values()))

    @property
    def known(self) -> dict[str, Cell]:
        """Cells to skip, by key; if runs are kept, only cells whose run file exists."""
        return {
            key: cell
            for key, cell in self._cells.items()
            if not self._needs_runs
            or (cell.run_file is not None and (self.folder / cell.run_file).is_file())
        }

    def add(self, cells: Sequence[Cell], runs: Mapping[str, bytes]) -> None:
        """Record finished cells, with the contents of their run files by name."""
        for name, data in runs.items():
            save_whole(self.folder / name, data)
        self._append(cell.row() for cell in cells)
        self._cells |= {cell.key: cell for cell in cells}

    def _append(self, values: Iterable[dict[str, Any]]) -> None:
        try:
            self._file.writelines(json.dumps(each).encode("ascii") + b"\n" for each in values)
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
    return [*{cell.key: cell for cell in _cells(lines[1:], path)}.values()]


def _whole_lines(path: Path) -> list[bytes]:
    """The complete lines; a crash may leave the last line incomplete."""
    try:
        return path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}") from error


def _check_head(line: bytes, head: Mapping[str, Any], folder: Path) -> None:
    try:
        stored = json.loads(line)
    except (ValueError, RecursionError):
        stored = None
    if not isinstance(stored, dict) or {name: stored.get(name) for name in _FORMAT} != _FORMAT:
        raise RecordError(f"{folder / JOURNAL} is not a sweep of this version. {_ELSEWHERE}")
    names = {"model": "model", "part": "part of the answers", "same_answer": "same-answer rule"}
    other = [words for name, words in names.items() if stored.get(name) != head[name]]
    if other:
        raise RecordError(
            f"the folder {folder} contains a sweep with another {listed(other)}. {_ELSEWHERE}, or "
            "delete this one to start again"
        )


_ELSEWHERE: Final = "Choose another folder"


def _cells(lines: Iterable[bytes], path: Path) -> Iterable[Cell]:
    for number, line in enumerate(lines, start=2):
        try:
            yield cell_from_row(json.loads(line))
        except (RecordError, ValueError, RecursionError) as error:
            raise RecordError(
                f"{path}, line {number}: {error}; delete the line to run its cell again"
            ) from error
