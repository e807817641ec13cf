"""A sweep as a page follows it: beginning, cells, progress and end; and its file."""

import gzip
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from eab.errors import ConfigError, EabError, RecordError
from eab.events import Progressed, RunEnded
from eab.events.fields import Count
from eab.formatting import counted, reason_of
from eab.labs.tuning.cell import COLUMNS, Cell, cell_from_row
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.prompt_sets import TuningPrompt
from eab.labs.tuning.questions import check_question
from eab.record import report as reports
from eab.record.prompt_lines import checked_id
from eab.record.typed_json import read

MAX_BYTES: Final = 64 * 2**20  # of the JSON in a file
MAX_VALUES: Final = 2_000_000
MAX_CELLS: Final = 20_000
_HEAD: Final = {"format": "eab-tuning", "version": 1}


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
class Began(reports.Began):
    """The start of a sweep."""

    cells: Count
    plan: Plan | None = None  # None in files from before it was kept
    known: Count = 0  # cells that a stopped sweep had already, made here or elsewhere


ReportEvent: TypeAlias = Began | Progressed | Cell | RunEnded


class TuningReport(reports.Report[Began, Cell]):
    """A sweep so far."""

    beginning = Began
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


def dumps(report: TuningReport) -> bytes:
    """A sweep as gzip of JSON; the same cells give the same bytes."""
    content = _head(report) | {"cells": _rows(report.cells)}
    return gzip.compress(_json(content), mtime=0)


def lines(report: TuningReport, known: int) -> bytes:
    """What a file of a growing sweep gets once `known` of its cells are in it; -1: it is new."""
    new = [] if known >= 0 else [_head(report)]
    return b"".join(_json(value) + b"\n" for value in [*new, *_rows(report.cells[max(0, known) :])])


def _head(report: TuningReport) -> dict[str, Any]:
    if report.began is None:
        raise RecordError("the sweep has not started, so there is nothing to save")
    return _HEAD | {"began": asdict(report.began), "columns": COLUMNS}


def _rows(cells: Sequence[Cell]) -> list[list[Any]]:
    return [[row[name] for name in COLUMNS] for row in (cell.row() for cell in cells)]


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def loads(data: bytes, name: str) -> TuningReport:
    """Read a sweep, which was stopped if cells are missing; RecordError says what is wrong."""
    return _read(lambda: json.loads(_limited(_unpacked(data, name), name)), name)


def load_lines(data: bytes, name: str) -> TuningReport:
    """Read what `lines` gave, up to the last whole line; RecordError says what is wrong."""

    def content() -> Any:
        head, *rows = _limited(data, name).split(b"\n")[:-1]
        return json.loads(head) | {"cells": [json.loads(row) for row in rows]}

    return _read(content, name)


def _limited(text: bytes, name: str) -> bytes:
    if text.count(b",") > MAX_VALUES:
        raise RecordError(f"the sweep {name} has more than {MAX_VALUES:,} values")
    return text


def _read(parse: Callable[[], Any], name: str) -> TuningReport:
    try:
        content = parse()
        if not isinstance(content, dict) or {key: content.get(key) for key in _HEAD} != _HEAD:
            raise RecordError(f"{name} is not a sweep file of this version")
        began, columns = read(content["began"], Began), content["columns"]
        if max(began.cells, len(content["cells"])) > MAX_CELLS:
            raise RecordError(f"the sweep {name} has more than {MAX_CELLS:,} cells")
        if began.plan is not None:
            _check_plan(began.plan, began.cells, len(content["cells"]))
        cells = [cell_from_row(dict(zip(columns, row, strict=True))) for row in content["cells"]]
    except (
        OSError,
        EOFError,
        zlib.error,
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
    ) as error:
        said = str(error) if isinstance(error, EabError) else reason_of(error)
        raise RecordError(f"the sweep {name} cannot be read: {said}") from error
    report = TuningReport()
    for event in (began, *cells):
        report.apply(event)
    report.apply(RunEnded(0, "stopped" if report.missing else "finished"))
    return report


def _check_plan(plan: Plan, cells: int, made: int) -> None:
    """Refuse a plan that no sweep can have; an EabError says why."""
    if not 1 <= plan.cells == cells or made > cells:
        raise ConfigError("its plan has another number of cells")
    for prompt in plan.prompts:
        checked_id(prompt.id)
        check_question(prompt.question, f"the prompt {prompt.id}")
    if len({prompt.id for prompt in plan.prompts}) < len(plan.prompts):
        raise ConfigError("its plan has two prompts with the same id")


def load(path: Path) -> TuningReport:
    """Read a sweep from a file; see `loads`."""
    try:
        return loads(path.read_bytes(), str(path))
    except OSError as error:
        raise RecordError(f"the sweep {path} cannot be read: {error.strerror}") from error


def _unpacked(data: bytes, name: str) -> bytes:
    unpacking = zlib.decompressobj(wbits=31)  # gzip
    found = unpacking.decompress(data, MAX_BYTES)
    if unpacking.unconsumed_tail:
        raise RecordError(f"the sweep {name} has more than {MAX_BYTES // 2**20} MiB")
    return found
