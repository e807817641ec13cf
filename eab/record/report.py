"""Reports: the results of a measurement, point by point, and their files."""

import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, get_args

import msgspec

from eab.errors import EabError, RecordError
from eab.events import Progressed, RunEnded, fields
from eab.formatting import counted, reason_of
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
MAX_BYTES: Final = 64 * 2**20  # of the JSON in a file
MAX_VALUES: Final = 2_000_000
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
    """The file of a kind of report: JSON, perhaps packed by gzip."""

    report: type[_R]  # the kind
    name: str  # what the file says it is
    version: int  # the version that is read and written
    events: Any  # the union of its events
    what: str = "report"  # in messages

    def dumps(self, report: _R) -> str:
        """The report as JSON."""
        return json.dumps(self.content(report), indent=1) + "\n"

    def load(self, path: Path) -> _R:
        """Read a file; RecordError says what is wrong."""
        return self.read(lambda: json.loads(unpacked(path.read_bytes())), str(path))

    def loads(self, data: bytes, name: str) -> _R:
        """Read the bytes of the file of this name; RecordError says what is wrong."""
        return self.read(lambda: json.loads(unpacked(data)), name)

    def read(self, parse: Callable[[], Any], name: str) -> _R:
        """Read the content that is parsed of the file of this name; RecordError if it is bad."""
        head, report = self.head, self.report()
        try:
            content = parse()
            if not isinstance(content, dict) or {key: content.get(key) for key in head} != head:
                raise RecordError(f"it is not a {self.what} of this version")
            for event in self.events_in(content):
                report.apply(event)
        except (
            EabError,
            OSError,
            EOFError,
            zlib.error,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            said = str(error) if isinstance(error, EabError) else reason_of(error)
            raise RecordError(f"the {self.what} {name} cannot be read: {said}") from error
        return report

    @property
    def head(self) -> dict[str, Any]:
        """What every file of this kind and version has."""
        return {"format": self.name, "version": self.version}

    def content(self, report: _R) -> dict[str, Any]:
        """What a file has, as plain values."""
        events = [report.began, *report.points, report.ended]
        lines = [
            {"event": _tag(type(event))} | msgspec.to_builtins(event)
            for event in events
            if event is not None
        ]
        return self.head | {"events": lines}

    def events_in(self, content: dict[str, Any]) -> Iterable[Any]:
        """The events of such values."""
        kinds = {_tag(kind): kind for kind in get_args(self.events)}
        return [read(line, kinds[line.pop("event")]) for line in content["events"]]


def _tag(kind: type) -> str:
    """What files call an event of this kind."""
    return (Began if issubclass(kind, Began) else kind).__name__


def unpacked(data: bytes) -> bytes:
    """The JSON in a file, packed by gzip or not; RecordError if it is too much."""
    if data.startswith(_GZIP):
        unpacking = zlib.decompressobj(wbits=31)  # gzip
        data = unpacking.decompress(data, MAX_BYTES)
        if unpacking.unconsumed_tail:
            raise RecordError(f"it has more than {MAX_BYTES // 2**20} MiB")
    if data.count(b",") > MAX_VALUES:
        raise RecordError(f"it has more than {MAX_VALUES:,} values")
    return data
