"""Reports: the results of a measurement, point by point, and their files."""

import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, get_args

import msgspec

from eab.errors import RecordError
from eab.events import Progressed, RunEnded, fields
from eab.formatting import counted
from eab.record.typed_json import read


@dataclass(frozen=True, slots=True)
class Began:
    """The start of a measurement."""

    model: fields.ModelName  # name of the model, with its weight format where it is not as loaded
    dtype: fields.Word
    machine: fields.Message  # processor or GPU, threads, versions


Beginning = TypeVar("Beginning", bound=Began)
Point = TypeVar("Point")
_P = TypeVar("_P")
_GZIP: Final = b"\x1f\x8b"  # how its files begin


class Report(Generic[Beginning, Point]):
    """One measurement so far; only `apply` changes it. `began` is None before its start event."""

    beginning: type[Any]  # a subclass names its start event,
    point = "measurement"  # and a point, in words

    def __init__(self) -> None:
        self.began: Beginning | None = None
        self.ended: RunEnded | None = None
        self.progress = Progressed(0.0, "Starting")
        self.points: list[Point] = []

    def apply(self, event: Any) -> None:
        """Add one more event."""
        if isinstance(event, Progressed):
            self.progress = event
        elif isinstance(event, RunEnded):
            self.ended = event
        elif isinstance(event, self.beginning):
            self.began = event
        else:
            self.points.append(event)

    def of(self, kind: type[_P]) -> list[_P]:
        """The points of one kind."""
        return [point for point in self.points if isinstance(point, kind)]

    @property
    def complete(self) -> bool:
        """Whether it ran to its end."""
        return self.ended is not None and self.ended.reason == "finished"

    @property
    def made(self) -> str:
        """How many points it has, named as `point` says."""
        return counted(len(self.points), self.point)


_R = TypeVar("_R", bound=Report[Any, Any])


@dataclass(frozen=True, slots=True)
class ReportFormat(Generic[_R]):
    """The file of a kind of report."""

    report: type[_R]  # the kind
    name: str  # what the file says it is
    version: int  # the version that is read and written
    events: Any  # the union of its events

    def dumps(self, report: _R) -> str:
        """The report as JSON."""
        events = [report.began, *report.points, report.ended]
        lines = [
            {"event": type(event).__name__} | msgspec.to_builtins(event)
            for event in events
            if event is not None
        ]
        return json.dumps(self._head | {"events": lines}, indent=1) + "\n"

    def load(self, path: Path) -> _R:
        """Read a file of this project, perhaps packed by gzip; RecordError says what is wrong."""
        head, report = self._head, self.report()
        kinds = {kind.__name__: kind for kind in get_args(self.events)}
        try:
            data = path.read_bytes()
            value = json.loads(gzip.decompress(data) if data.startswith(_GZIP) else data)
            if not isinstance(value, dict) or {name: value.get(name) for name in head} != head:
                raise RecordError(f"{path} is not a report of this version")
            events = [read(line, kinds[line.pop("event")]) for line in value["events"]]
        except (
            OSError,
            EOFError,
            zlib.error,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            raise RecordError(f"the report {path} cannot be read: {error}") from error
        for event in events:
            report.apply(event)
        return report

    @property
    def _head(self) -> dict[str, Any]:
        return {"format": self.name, "version": self.version}
