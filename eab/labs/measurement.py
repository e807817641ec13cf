"""What all laboratories share: flat rows of measured values, the report that collects them, its
file, its tables, and the description of what a page shows of it.

A laboratory is a generator of events: its start, rows, the events of runs if it makes any, progress
between them, and RunEnded. To stop it, stop iterating. Repeats of one measurement are rows of their
own, which differ only in what was measured.
"""

import json
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeVar

import msgspec
import pandas as pd

from eab.errors import EabError, RecordError
from eab.formatting import counted, reason_of, with_ratio
from eab.run import RunFold, RunState
from eab.run.events import EndReason, Event, Progressed, RunEnded, fields
from eab.text_values import NotDeclaredError, read
from eab.timing import Timing, are_too_few, ratio_words, timings_by, with_spread

MAX_BYTES: Final = 64 * 2**20  # of JSON in a file
MAX_VALUES: Final = 2_000_000
_GZIP: Final = b"\x1f\x8b"  # the first bytes of a gzip file
_OF_A_BAD_FILE: Final = (
    EabError,
    OSError,
    EOFError,
    zlib.error,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
)


@contextmanager
def explained(what: str, name: str) -> Iterator[None]:
    """Raise RecordError, which says what is wrong with the file, for any error of a bad file."""
    try:
        yield
    except _OF_A_BAD_FILE as error:
        said = str(error) if isinstance(error, EabError | NotDeclaredError) else reason_of(error)
        raise RecordError(f"the {what} {name} cannot be read: {said}") from error


def unpacked(data: bytes) -> bytes:
    """The JSON in a file, compressed by gzip or not; RecordError if it is too large."""
    if data.startswith(_GZIP):
        unpacking = zlib.decompressobj(wbits=31)  # gzip
        data = unpacking.decompress(data, MAX_BYTES)
        if unpacking.unconsumed_tail:
            raise RecordError(f"it has more than {MAX_BYTES // 2**20} MiB")
    if data.count(b",") > MAX_VALUES:
        raise RecordError(f"it has more than {MAX_VALUES:,} values")
    return data


Value: TypeAlias = bool | int | float | str | list[str] | None
Values: TypeAlias = dict[str, Any]  # the values are of type Value
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class LabBegan:
    """The start of a measurement."""

    model: fields.ModelName  # model name, with the weight format if it is not as loaded
    dtype: fields.Word
    machine: fields.Message  # processor or GPU, threads, versions
    lab: str  # the name of its `Lab`
    about: Values = field(default_factory=dict)  # what holds for all of its rows
    given: tuple[Values, ...] = ()  # what is measured, if these are several, such as requests


@dataclass(frozen=True, slots=True)
class Row:
    """Values that were measured together; the rows of a table have the same names."""

    table: str
    values: Values


@dataclass(frozen=True, slots=True)
class OfRun:
    """An event of one of the runs that a laboratory makes."""

    name: str
    event: Event


LabEvent: TypeAlias = LabBegan | Row | OfRun | Progressed | RunEnded


class Report:
    """A measurement so far; only `apply` changes it. `began` is None until the start event."""

    def __init__(self) -> None:
        self.began: LabBegan | None = None
        self.ended: RunEnded | None = None
        self.progress = Progressed(0.0, "Starting")
        self._tables: dict[str, list[Values]] = {}
        self._folds: dict[str, RunFold] = {}
        self._computed: dict[Callable[[Report], Any], Any] = {}

    def apply(self, event: LabEvent) -> None:
        """Apply an event."""
        self._computed.clear()
        match event:
            case LabBegan():
                self.began = event
            case Row():
                self._tables.setdefault(event.table, []).append(event.values)
            case OfRun():
                self._folds.setdefault(event.name, RunFold()).apply(event.event)
            case Progressed():
                self.progress = event
            case _:
                self.ended = event

    def collect(self, events: Iterable[LabEvent]) -> Self:
        """Apply all events and return the report."""
        for event in events:
            self.apply(event)
        return self

    @property
    def complete(self) -> bool:
        """Whether the measurement finished."""
        return self.ended is not None and self.ended.reason == "finished"

    def rows(self, table: str, **where: Value) -> list[Values]:
        """The rows of a table with these values, as dicts."""
        return [
            row
            for row in self._tables.get(table, [])
            if all(row[name] == value for name, value in where.items())
        ]

    def timing(self, table: str, column: str, **where: Value) -> Timing:
        """The repeats of one measurement."""
        return Timing(tuple(row[column] for row in self.rows(table, **where)))

    def timings(self, table: str, by: str, column: str, **where: Value) -> dict[Any, Timing]:
        """The repeats by the value of another column, without the rows that lack the value."""
        rows = self.rows(table, **where)
        return timings_by((row[by], row[column]) for row in rows if row[column] is not None)

    @property
    def about(self) -> dict[str, Any]:
        """What holds for all rows; empty before the start."""
        return self.began.about if self.began is not None else {}

    @property
    def runs(self) -> dict[str, RunState]:
        """The runs that have started, in this order."""
        return {name: fold.run for name, fold in self._folds.items() if fold.run is not None}

    @property
    def tables(self) -> list[str]:
        """The names of the tables that have rows."""
        return [*self._tables]

    @property
    def made(self) -> str:
        """The numbers of runs that have ended and of rows, as text."""
        ended = sum(run.ended is not None for run in self.runs.values())
        rows = sum(map(len, self._tables.values()))
        parts = [counted(ended, "run")] if ended else []
        if rows or not parts:
            parts.append(counted(rows, "row"))
        return ", ".join(parts)

    def computed(self, compute: Callable[["Report"], _T]) -> _T:
        """compute(self), computed once until the next event."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        value: _T = self._computed[compute]
        return value


HEAD: Final = {"format": "eab-measurement", "version": 1}  # of every file of a report


def load(path: Path) -> Report:
    """Read a report's file; RecordError says what is wrong."""
    with explained("report", str(path)):
        return Report().collect(events_in(json.loads(unpacked(path.read_bytes()))))


def events_in(content: Any) -> Iterator[LabEvent]:
    """The events in the content of a report's file, without those of runs."""
    if not isinstance(content, dict) or {key: content.get(key) for key in HEAD} != HEAD:
        raise RecordError("it is not a report of this version")
    yield read(content["began"], LabBegan)
    for table, columns in read(content["tables"], dict[str, dict[str, list[Value]]]).items():
        for values in zip(*columns.values(), strict=True):
            yield Row(table, dict(zip(columns, values, strict=True)))
    if content["ended"] is not None:
        yield RunEnded(0, read(content["ended"], EndReason))  # type: ignore[arg-type]


def dumps(report: Report, units: Mapping[str, str]) -> str:
    """A report as JSON, with each column of a table as a list, and without its runs; RecordError
    if it has not started.

    `units` are those of the columns, for other programs that read the file.
    """
    if report.began is None:
        raise RecordError("the measurement has not started, so there is nothing to save")
    tables = {
        table: {name: [row[name] for row in rows] for name in rows[0]}
        for table in report.tables
        if (rows := report.rows(table))
    }
    content = HEAD | {"began": msgspec.to_builtins(report.began), "tables": tables}
    content |= {"ended": report.ended and report.ended.reason, "units": dict(units)}
    return json.dumps(content)


class Counter:
    """How much of a measurement is done, in parts that take about equally long."""

    def __init__(self, parts: int) -> None:
        self.parts, self.done = parts, 0

    def at(self, words: str, share: float = 0.0) -> Progressed:
        """The progress after this share of the current part."""
        return Progressed(min(1.0, (self.done + share) / self.parts), words)

    def rounds(self, repeats: int, settings: Collection[_T]) -> Iterator[tuple[int, _T]]:
        """Each setting in turn, in a warm-up round 0 and in each repeat; counts them as parts."""
        for number in range(repeats + 1):
            for setting in settings:
                yield number, setting
                self.done += 1


def repeat_words(number: int, repeats: int) -> str:
    """The name of this round; number 0 is the warm-up."""
    return f"repeat {number} of {repeats}" if number else "warm-up"


class Measure(NamedTuple):
    """A line of a table for reading."""

    title: str  # with the unit, unless the values are written with theirs
    of: Callable[[Any], Timing | float | None]  # the value of one alternative, if it has one
    written: Callable[[float], str]
    is_time: bool = False


class Chart(NamedTuple):
    """Lines through medians, with the quartiles of the repeats, or single points."""

    x: str  # the titles of the axes, with their units
    y: str
    lines: Mapping[str, Mapping[Any, Timing]]  # y by x, in the unit of the rows
    points: Mapping[str, Mapping[Any, Timing]] = {}  # the same, without lines between them
    scale: float = 1.0  # from the unit of the rows to that of the axis
    log: str = ""  # the logarithmic axes: "", "x", "y" or "xy"
    ticks: Sequence[float] = ()  # on the x axis
    mark: tuple[float, str] | None = None  # an x, and what it is
    stacked: bool = False  # whether the points are bars, one upon the other
    bands: bool = False  # whether the quartiles are bands, for lines with many points


TextTable: TypeAlias = Sequence[Sequence[str]]  # the headings, then rows of text


@dataclass(frozen=True, slots=True)
class Lab:
    """What a page shows of a laboratory's report."""

    name: str  # in files and URLs
    units: Mapping[str, str]  # of the columns of its rows, for those that have one
    answer: Callable[[Report], str]  # to the page's question, in a sentence or two
    table: Callable[[Report], TextTable] = lambda _: ()
    note: str = ""  # how to read the table
    chart: Callable[[Report], Chart] | None = None  # None if the page draws one of its own


def measures_table(alternatives: Mapping[str, Any], measures: Sequence[Measure]) -> TextTable:
    """A row per measure, without those that are 0 everywhere, and a column per alternative. Counts
    and, if there are enough repeats, times are also compared with the first alternative.
    """
    rows: list[Sequence[str]] = [("Measure", *alternatives)]
    for title, of, written, is_time in measures:
        values = [of(alternative) for alternative in alternatives.values()]
        timings = [
            value if isinstance(value, Timing) or value is None else Timing((value,))
            for value in values
        ]
        if not any(timing and timing.high for timing in timings):
            continue
        first = timings[0]
        rows.append((title, *(_cell(timing, first, written, is_time) for timing in timings)))
        if is_time and first and not all(one and are_too_few(one, first) for one in timings):
            beside = (ratio_words(one, first) if one else "–" for one in timings[1:])
            rows.append((f"{title}, times as long", "–", *beside))
    return rows if alternatives else ()


def _cell(
    timing: Timing | None, first: Timing | None, written: Callable[[float], str], is_time: bool
) -> str:
    if timing is None:
        return "–"
    if is_time or first is None or len(timing.seconds) > 1:
        return with_spread(timing, written)
    return with_ratio(timing.median, first.median, written)


def chart_table(chart: Chart, x: str, written: Callable[[float], str]) -> TextTable:
    """The points of a chart: a row per x, and a column per line."""
    lines = {**chart.lines, **chart.points}
    xs = sorted({x for line in lines.values() for x in line})
    return [
        (x, *lines),
        *(
            (
                f"{at:,}" if isinstance(at, int) else f"{at:.3g}",
                *(with_spread(line[at], written) if at in line else "–" for line in lines.values()),
            )
            for at in xs
        ),
    ]


def rows_table(report: Report, table: str, units: Mapping[str, str]) -> pd.DataFrame:
    """The rows of a table for download, with units in the headings."""
    rows: Sequence[Values] = [
        {f"{name} ({units[name]})" if name in units else name: value for name, value in row.items()}
        for row in report.rows(table)
    ]
    return pd.DataFrame(rows)
