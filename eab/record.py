"""Save and load runs: gzip of JSON lines, a header with the version first, then one event per line. Never pickle.

A run file is untrusted: sizes are limited, every field is checked for its type, and the events must fold.
"""

import gzip
import json
import math
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import cattrs
from cattrs.strategies import configure_tagged_union

from eab.errors import ConfigError, RecordError
from eab.events import Event
from eab.run import fold

SUFFIX: Final = ".eab"
VERSION: Final = 1
MAX_FILE_BYTES: Final = 32 * 2**20
MAX_TEXT_BYTES: Final = 512 * 2**20
_HEADER: Final = {"format": "eab-run", "version": VERSION}


def save(events: Iterable[Event], path: Path | str) -> None:
    """Write a run file. An older file of that name stays as it was unless the new one is complete."""
    path = Path(path)
    scratch = path.with_name(path.name + ".part")
    try:
        scratch.write_bytes(dumps(events))
        os.replace(scratch, path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise RecordError(
            f"the run cannot be saved as {path}: {error.strerror}. Free some space or choose another place"
        ) from error


def load(path: Path | str) -> list[Event]:
    """Read a run file. RecordError says what is wrong with it."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise RecordError(f"{path} is larger than {MAX_FILE_BYTES // 2**20} MiB; that is no run file")
        return loads(path.read_bytes(), str(path))
    except OSError as error:
        raise RecordError(f"the run file {path} cannot be read: {error.strerror}") from error


def dumps(events: Iterable[Event]) -> bytes:
    """A run file as bytes; the same events give the same bytes."""
    lines = [_HEADER, *(_converter.unstructure(event, Event) for event in events)]
    try:
        text = "\n".join(json.dumps(line, separators=(",", ":"), allow_nan=False) for line in lines)
    except ValueError as error:
        raise RecordError(f"the run cannot be saved: it holds a number that is none ({error})") from error
    return gzip.compress(text.encode("ascii"), mtime=0)


def loads(data: bytes, name: str = "the run file") -> list[Event]:
    """The events in the bytes of a run file; `name` is for the messages."""
    lines = _unpack(data, name).split("\n")
    header = _parse(lines[0], name, 1)
    if not isinstance(header, dict) or header.get("format") != _HEADER["format"]:
        raise RecordError(f"{name} is no run file of the EAB Explorer (its first line does not say so)")
    if header.get("version") != VERSION:
        raise RecordError(f"{name} has version {header.get('version')!r}; this program reads version {VERSION}")
    events = [
        _event(_parse(line, name, number), name, number) for number, line in enumerate(lines[1:], start=2) if line
    ]
    if not events:
        raise RecordError(f"{name} holds no event")
    fold(events)
    return events


def _unpack(data: bytes, name: str) -> str:
    if len(data) > MAX_FILE_BYTES:
        raise RecordError(f"{name} is larger than {MAX_FILE_BYTES // 2**20} MiB; that is no run file")
    try:
        unpacker = zlib.decompressobj(wbits=31)
        text = unpacker.decompress(data, MAX_TEXT_BYTES)
        if unpacker.unconsumed_tail:
            raise RecordError(f"{name} unpacks to more than {MAX_TEXT_BYTES // 2**20} MiB; that is no run file")
        if not unpacker.eof:
            raise RecordError(f"{name} is cut short; copy or download it again")
        return text.decode("ascii")
    except (zlib.error, UnicodeDecodeError) as error:
        raise RecordError(f"{name} is no run file of the EAB Explorer, or it is damaged ({error})") from error


def _parse(line: str, name: str, number: int) -> Any:
    try:
        return json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{name}, line {number} is not JSON: {error}") from error


def _event(value: Any, name: str, number: int) -> Event:
    try:
        event: Event = _converter.structure(value, Event)  # type: ignore[arg-type]
        return event
    except Exception as error:  # cattrs raises what the value provokes, in groups
        why = "; ".join(_reasons(error))
        raise RecordError(f"{name}, line {number} is no event of this version: {why[:300]}") from error


def _reasons(error: BaseException) -> list[str]:
    """What went wrong, innermost first to be said: a setting's own words, or cattrs' path to the bad field."""
    if isinstance(error, ConfigError):
        return [str(error)]
    if isinstance(error, BaseExceptionGroup):
        words = [reason for inner in error.exceptions for reason in _reasons(inner) if _speaks(inner)]
        return words or cattrs.transform_error(error)
    return [repr(error)]


def _speaks(error: BaseException) -> bool:
    """Whether a ConfigError is in there."""
    if isinstance(error, BaseExceptionGroup):
        return any(_speaks(inner) for inner in error.exceptions)
    return isinstance(error, ConfigError)


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (int, float, str, bool):
        converter.register_structure_hook(kind, _exactly)
    configure_tagged_union(Event, converter, tag_name="event")
    return converter


def _exactly(value: Any, kind: Any) -> Any:
    """No coercion: "3" is not 3, and True is not 1; only a whole float may arrive as an int."""
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind is not float and type(value) is kind:
        return value
    raise TypeError(f"expected {kind.__name__}, got {value!r:.40}")


_converter = _make_converter()
