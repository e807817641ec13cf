"""A sweep as a page follows it (start, cells, progress and end), and its file."""

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import msgspec

from eab.errors import ConfigError, RecordError
from eab.events import Progressed, RunEnded
from eab.events.fields import Count
from eab.formatting import counted
from eab.labs.tuning.cell import COLUMNS, Cell, cell_from_row
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.prompt_sets import TuningPrompt, check_question
from eab.record import report as reports
from eab.record.prompt_lines import checked_id
from eab.record.typed_json import read

MAX_CELLS: Final = 20_000


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
class SweepBegan(reports.Began):
    """The start of a sweep."""

    cells: Count
    plan: Plan | None = None  # None for a pilot
    known: Count = 0  # cells taken over from a stopped sweep, made here or elsewhere


ReportEvent: TypeAlias = SweepBegan | Progressed | Cell | RunEnded


class TuningReport(reports.Report[SweepBegan, Cell]):
    """A sweep so far."""

    beginning = SweepBegan
    point = "cell"

    @property
    def cells(self) -> list[Cell]:
        """The cells so far."""
        return self.points

    @property
    def model_name(self) -> str:
        """The model's name, as in `eab.models.loading`; empty before the start."""
        return self.began.model if self.began is not None else ""

    @property
    def plan(self) -> Plan | None:
        """The plan of the sweep, if known."""
        return self.began.plan if self.began is not None else None

    @property
    def missing(self) -> int:
        """How many cells failed or have not been made yet."""
        return max(0, self.began.cells - len(self.cells)) if self.began is not None else 0

    @property
    def made(self) -> str:
        """How many cells have been made, as text."""
        if not self.missing:
            return counted(len(self.cells), self.point)
        return f"{len(self.cells):,} of {counted(len(self.cells) + self.missing, self.point)}"


class _SweepFormat(reports.ReportFormat[TuningReport]):
    """Stores each cell as a row, because there are thousands; the end follows from their number."""

    def content(self, report: TuningReport) -> dict[str, Any]:
        return self.beginning(report) | {"cells": _rows(report.cells)}

    def beginning(self, report: TuningReport) -> dict[str, Any]:
        """Everything except the cells."""
        if report.began is None:
            raise RecordError("the sweep has not started, so there is nothing to save")
        return self.head | {"began": msgspec.to_builtins(report.began), "columns": COLUMNS}

    def events_in(self, content: dict[str, Any]) -> Iterable[ReportEvent]:
        began, columns, rows = (
            read(content["began"], SweepBegan),
            content["columns"],
            content["cells"],
        )
        if max(began.cells, len(rows)) > MAX_CELLS:
            raise RecordError(f"it has more than {MAX_CELLS:,} cells")
        if began.plan is not None:
            _check_plan(began.plan, began.cells, len(rows))
        cells = [cell_from_row(dict(zip(columns, row, strict=True))) for row in rows]
        return [began, *cells, RunEnded(0, "stopped" if len(rows) < began.cells else "finished")]


_FORMAT: Final = _SweepFormat(TuningReport, "eab-tuning", 1, ReportEvent, "sweep")
load, loads = _FORMAT.load, _FORMAT.loads


def dumps(report: TuningReport) -> bytes:
    """A sweep as gzipped JSON; the same cells always give the same bytes."""
    return gzip.compress(_json(_FORMAT.content(report)), mtime=0)


def lines(report: TuningReport, known: int) -> bytes:
    """The lines to append to a running sweep's file that has `known` cells; -1 for a new file."""
    new = [] if known >= 0 else [_FORMAT.beginning(report)]
    return b"".join(_json(value) + b"\n" for value in [*new, *_rows(report.cells[max(0, known) :])])


def load_lines(data: bytes, name: str) -> TuningReport:
    """Read what `lines` wrote, up to the last complete line; RecordError if it is wrong."""

    def content() -> Any:
        head, *rows = reports.unpacked(data).split(b"\n")[:-1]
        return json.loads(head) | {"cells": [json.loads(row) for row in rows]}

    return _FORMAT.read(content, name)


def _rows(cells: Sequence[Cell]) -> list[list[Any]]:
    return [[row[name] for name in COLUMNS] for row in (cell.row() for cell in cells)]


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _check_plan(plan: Plan, cells: int, made: int) -> None:
    """Refuse a plan that no sweep can have; raises an EabError with the reason."""
    if not 1 <= plan.cells == cells or made > cells:
        raise ConfigError("its plan has another number of cells")
    for prompt in plan.prompts:
        checked_id(prompt.id)
        check_question(prompt.question, f"the prompt {prompt.id}")
    if len({prompt.id for prompt in plan.prompts}) < len(plan.prompts):
        raise ConfigError("its plan has two prompts with the same id")
