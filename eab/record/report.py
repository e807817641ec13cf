"""Reports (the results of a measurement, point by point) and their files."""

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

from eab.errors import EabError, RecordError
from eab.events import Progressed, RunEnded, fields
from eab.formatting import counted, reason_of


@dataclass(frozen=True, slots=True)
class Began:
    """The start of a measurement."""

    model: fields.ModelName  # model name, with the weight format if it is not as loaded
    dtype: fields.Word
    machine: fields.Message  # processor or GPU, threads, versions


Beginning = TypeVar("Beginning", bound=Began)
Point = TypeVar("Point")
MAX_BYTES: Final = 64 * 2**20  # of JSON in a file
MAX_VALUES: Final = 2_000_000
_GZIP: Final = b"\x1f\x8b"  # the first bytes of a gzip file


class Report(Generic[Beginning, Point]):
    """A measurement so far; only `apply` changes it. `began` is None until the start event."""

    beginning: type[Any]  # the class of the start event, set by a subclass
    point = "measurement"  # the word for a point in messages

    def __init__(self) -> None:
        self.began: Beginning | None = None
        self.ended: RunEnded | None = None
        self.progress = Progressed(0.0, "Starting")
        self.points: list[Point] = []

    def apply(self, event: Any) -> None:
        """Apply an event."""
        if isinstance(event, Progressed):
            self.progress = event
        elif isinstance(event, RunEnded):
            self.ended = event
        elif isinstance(event, self.beginning):
            self.began = event
        else:
            self.points.append(event)

    def collect(self, events: Iterable[Any]) -> Self:
        """Apply all events and return the report."""
        for event in events:
            self.apply(event)
        return self

    @property
    def complete(self) -> bool:
        """Whether the measurement finished."""
        return self.ended is not None and self.ended.reason == "finished"

    @property
    def made(self) -> str:
        """The number of points as text, with the word in `point`."""
        return counted(len(self.points), self.point)


_R = TypeVar("_R", bound=Report[Any, Any])


@dataclass(frozen=True, slots=True)
class ReportFormat(ABC, Generic[_R]):
    """The file format of a kind of report: JSON, possibly compressed by gzip."""

    report: type[_R]  # the kind of report
    name: str  # the format name in the file
    version: int  # the version that is read and written
    what: str = "report"  # the word for it in messages

    def load(self, path: Path) -> _R:
        """Read a file; RecordError says what is wrong."""
        return self.read(lambda: json.loads(unpacked(path.read_bytes())), str(path))

    def loads(self, data: bytes, name: str) -> _R:
        """Read a file's bytes; `name` is for the RecordError that says what is wrong."""
        return self.read(lambda: json.loads(unpacked(data)), name)

    def read(self, parse: Callable[[], Any], name: str) -> _R:
        """Read the content that `parse` returns for the file `name`; RecordError if it is bad."""
        head, report = self.head, self.report()
        try:
            content = parse()
            if not isinstance(content, dict) or {key: content.get(key) for key in head} != head:
                raise RecordError(f"it is not a {self.what} of this version")
            report.collect(self.events_in(content))
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
        """The fields that all files of this kind and version have in common."""
        return {"format": self.name, "version": self.version}

    @abstractmethod
    def content(self, report: _R) -> dict[str, Any]:
        """The content of a report's file, as plain values."""

    @abstractmethod
    def events_in(self, content: dict[str, Any]) -> Iterable[Any]:
        """The events in the content of a file."""


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
