"""A sweep as a page follows it: beginning, cells, progress and end; and its file."""

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, TypeAlias

from eab.errors import ConfigError, RecordError
from eab.events import Progressed, RunEnded
from eab.events.fields import Count
from eab.formatting import counted
from eab.labs.tuning.cell import COLUMNS, Cell, cell_from_row
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.prompt_sets import TuningPrompt
from eab.labs.tuning.questions import check_question
from eab.record import report as reports
from eab.record.prompt_lines import checked_id
from eab.record.typed_json import read

MAX_CELLS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What a sweep makes; with its cells so far, all that is needed to go on."""

    grid: Grid
    prompts: tuple[TuningPrompt, ...]

    @property
    def cells(self) -> int:
        """How many cells it has."""
        return self.grid.tried * len(self.grid.seeds) * len(self.prompts)


def plan_of(prompts: Sequence[TuningPrompt], grid: Grid) -> Plan:
    """The plan of this sweep, of values that a file can hold."""
    varied = {name: [*values] for name, values in grid.varied.items()}
    return Plan(replace(grid, varied=varied, seeds=[*grid.seeds]), tuple(prompts))


@dataclass(frozen=True, slots=True)
class SweepBegan(reports.Began):
    """The start of a sweep."""

    cells: Count
    plan: Plan | None = None  # None in files from before it was kept
    known: Count = 0  # cells that a stopped sweep had already, made here or elsewhere


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
        """The model, as `eab.models.loading` names it; empty before the beginning."""
        return self.began.model if self.began is not None else ""

    @property
    def plan(self) -> Plan | None:
        """What it makes, if that is known."""
        return self.began.plan if self.began is not None else None

    @property
    def missing(self) -> int:
        """How many of its cells were not made, or not yet."""
        return max(0, self.began.cells - len(self.cells)) if self.began is not None else 0

    @property
    def made(self) -> str:
        """How many of its cells it has."""
        if not self.missing:
            return counted(len(self.cells), self.point)
        return f"{len(self.cells):,} of {counted(len(self.cells) + self.missing, self.point)}"


class _SweepFormat(reports.ReportFormat[TuningReport]):
    """Each cell is a row of values, as there are thousands; the end follows from their number."""

    def content(self, report: TuningReport) -> dict[str, Any]:
        return self.beginning(report) | {"cells": _rows(report.cells)}

    def beginning(self, report: TuningReport) -> dict[str, Any]:
        """All but the cells."""
        if report.began is None:
            raise RecordError("the sweep has not started, so there is nothing to save")
        return self.head | {"began": asdict(report.began), "columns": COLUMNS}

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
    """A sweep as gzip of JSON; the same cells give the same bytes."""
    return gzip.compress(_json(_FORMAT.content(report)), mtime=0)


def lines(report: TuningReport, known: int) -> bytes:
    """What a file of a growing sweep gets once `known` of its cells are in it; -1: it is new."""
    new = [] if known >= 0 else [_FORMAT.beginning(report)]
    return b"".join(_json(value) + b"\n" for value in [*new, *_rows(report.cells[max(0, known) :])])


def load_lines(data: bytes, name: str) -> TuningReport:
    """Read what `lines` gave, up to the last whole line; RecordError says what is wrong."""

    def content() -> Any:
        head, *rows = reports.unpacked(data).split(b"\n")[:-1]
        return json.loads(head) | {"cells": [json.loads(row) for row in rows]}

    return _FORMAT.read(content, name)


def _rows(cells: Sequence[Cell]) -> list[list[Any]]:
    return [[row[name] for name in COLUMNS] for row in (cell.row() for cell in cells)]


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _check_plan(plan: Plan, cells: int, made: int) -> None:
    """Refuse a plan that no sweep can have; an EabError says why."""
    if not 1 <= plan.cells == cells or made > cells:
        raise ConfigError("its plan has another number of cells")
    for prompt in plan.prompts:
        checked_id(prompt.id)
        check_question(prompt.question, f"the prompt {prompt.id}")
    if len({prompt.id for prompt in plan.prompts}) < len(plan.prompts):
        raise ConfigError("its plan has two prompts with the same id")
