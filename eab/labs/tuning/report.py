"""Sweeps in files: a report with the plan to resume it, as pages follow it; and a sweep's folder,
with a file that grows by a line per finished cell, a table at the end, and run files.

Each line is flushed to disk before the next is written, so a crash loses at most the current items.
"""

import gzip
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import structs

from eab.errors import ConfigError, RecordError
from eab.formatting import counted
from eab.labs import measurement
from eab.labs.measurement import LabBegan, LabEvent, Row, Value, Values, explained, unpacked
from eab.labs.tuning.grid import Cell, Grid, cell_from_row, cells_table
from eab.labs.tuning.measure import Measurement
from eab.labs.tuning.prompt_sets import TuningPrompt, check_question
from eab.run import fold, record
from eab.run.events import ModelCard, RunEnded
from eab.run.events.fields import Count
from eab.run.record.files import cannot_be_written, checked_id, make_folder, save_whole, write_table
from eab.text_values import read

MAX_CELLS: Final = 20_000
_LAB, _TABLE = "sweep", "cells"


@dataclass(frozen=True, slots=True)
class Plan:
    """The cells that a sweep makes; with the cells so far, enough to resume it."""

    grid: Grid
    prompts: tuple[TuningPrompt, ...]

    @property
    def cells(self) -> int:
        """The total number of cells."""
        return self.grid.tried * len(self.grid.seeds) * len(self.prompts)


def plan_of(prompts: Sequence[TuningPrompt], grid: Grid) -> Plan:
    """The plan of this sweep, with values that a file can store."""
    varied = {name: [*values] for name, values in grid.varied.items()}
    return Plan(replace(grid, varied=varied, seeds=[*grid.seeds]), tuple(prompts))


@dataclass(frozen=True, slots=True)
class _About:
    plan: Plan
    known: Count = 0  # cells taken over from a stopped sweep, made here or elsewhere


def sweep_began(model: str, dtype: str, machine: str, plan: Plan, known: int = 0) -> LabBegan:
    """The start of a sweep, of whose cells so many are `known` from another one."""
    return LabBegan(model, dtype, machine, _LAB, msgspec.to_builtins(_About(plan, known)))


SweepEvent: TypeAlias = LabEvent | Cell  # a cell is the row of a file, once it is read


class TuningReport(measurement.Report):
    """A sweep so far; RecordError for an event that no sweep can have."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[Cell] = []
        self._about: _About | None = None

    def apply(self, event: SweepEvent) -> None:
        """Apply an event."""
        if isinstance(event, Row | Cell):
            self._computed.clear()
            if self.plan is None or len(self.cells) >= self.plan.cells:
                raise RecordError("it has too many cells")
            self.cells.append(event if isinstance(event, Cell) else cell_from_row(event.values))
            return
        if isinstance(event, LabBegan):
            if event.lab != _LAB:
                raise RecordError("it is not a sweep")
            self._about = read(event.about, _About)
            _check(self._about.plan)
        super().apply(event)

    def rows(self, table: str, **where: Value) -> list[Values]:
        """The cells as rows."""
        return [cell.row() for cell in self.cells] if table == _TABLE else []

    @property
    def tables(self) -> list[str]:
        """The names of the tables that have rows."""
        return [_TABLE] if self.cells else []

    @property
    def model_name(self) -> str:
        """The model's name, as in `eab.engine.models.loading`; empty before the start."""
        return self.began.model if self.began is not None else ""

    @property
    def plan(self) -> Plan | None:
        """The plan of the sweep; None before the start."""
        return self._about.plan if self._about is not None else None

    @property
    def known(self) -> int:
        """How many of the first cells were taken over from a stopped sweep."""
        return self._about.known if self._about is not None else 0

    @property
    def missing(self) -> int:
        """How many cells failed or have not been made yet."""
        return self.plan.cells - len(self.cells) if self.plan is not None else 0

    @property
    def made(self) -> str:
        """How many cells have been made, as text."""
        if not self.missing:
            return counted(len(self.cells), "cell")
        return f"{len(self.cells):,} of {counted(len(self.cells) + self.missing, 'cell')}"


def dumps(report: TuningReport) -> bytes:
    """A sweep as gzipped JSON; the same cells always give the same bytes."""
    return gzip.compress(measurement.dumps(report, {}).encode("ascii"), mtime=0)


def loads(data: bytes, name: str) -> TuningReport:
    """Read a sweep; RecordError says what is wrong with the file `name`."""
    with explained("sweep", name):
        return TuningReport().collect(measurement.events_in(json.loads(unpacked(data))))


def lines(report: TuningReport, known: int) -> bytes:
    """The lines to append to a running sweep's file that has `known` cells; -1 for a new file."""
    new: list[object] = [] if known >= 0 else [msgspec.to_builtins(report.began)]
    new += [cell.row() for cell in report.cells[max(0, known) :]]
    return b"".join(json.dumps(value).encode("ascii") + b"\n" for value in new)


def load_lines(data: bytes, name: str) -> TuningReport:
    """Read what `lines` wrote, up to the last complete line; RecordError if it is wrong."""
    with explained("sweep", name):
        head, *rows = unpacked(data).split(b"\n")[:-1]
        cells = (Row(_TABLE, json.loads(row)) for row in rows)
        began = read(json.loads(head), LabBegan)
        return TuningReport().collect([began, *cells, RunEnded(0, "stopped")])


def _check(plan: Plan) -> None:
    """Refuse a plan that no sweep can have; raises an EabError with the reason."""
    if not 1 <= plan.cells <= MAX_CELLS:
        raise RecordError(f"its plan has {plan.cells:,} cells; 1 to {MAX_CELLS:,} are allowed")
    for prompt in plan.prompts:
        checked_id(prompt.id)
        check_question(prompt.question, f"the prompt {prompt.id}")
        if prompt.settings:  # a server checks only those of the grid
            raise ConfigError(
                f"its prompt {prompt.id} has settings of its own, which only eab sweep runs"
            )
    if len({prompt.id for prompt in plan.prompts}) < len(plan.prompts):
        raise ConfigError("its plan has two prompts with the same id")


JOURNAL: Final = "cells.jsonl"
TABLE: Final = "cells.parquet"
SAMPLES: Final = "samples.parquet"  # of the run files
_FORMAT: Final = {"format": "eab-sweep", "version": 4}


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
        if lines and lines[0] != json.dumps(head).encode("ascii"):
            raise RecordError(
                f"the folder {folder} contains a sweep with another model, part of the answers or "
                "same-answer rule, or of another version. Choose another folder, or delete this "
                "one to start again"
            )
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
        if runs := self.known if self._needs_runs else {}:
            from eab.figures.tables import samples_of_runs_table

            files = sorted((f"{cell.run_file}", cell.prompt_id) for cell in runs.values())
            made = ((id, fold(record.load(self.folder / name))) for name, id in files)
            write_table(self.folder / SAMPLES, samples_of_runs_table(made))

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


def _cells(lines: Iterable[bytes], path: Path) -> Iterable[Cell]:
    for number, line in enumerate(lines, start=2):
        try:
            yield cell_from_row(json.loads(line))
        except (RecordError, ValueError, RecursionError) as error:
            raise RecordError(
                f"{path}, line {number}: {error}; delete the line to run its cell again"
            ) from error
