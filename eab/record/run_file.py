"""Save and load run files: gzip of JSON lines, first a header with the version, then the events.

A run file is untrusted: its size is limited in every way that costs time or memory, every field is
checked (eab.record.event_json), and the events must fold. It is never unpickled.
"""

import gzip
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from eab.errors import RecordError
from eab.events import Event
from eab.formatting import quoted
from eab.record.event_json import from_json, to_json
from eab.record.whole_file import write_whole
from eab.run import Run, RunFold

SUFFIX: Final = ".eab"
VERSION: Final = 2
MAX_FILE_BYTES: Final = 32 * 2**20
MAX_TEXT_BYTES: Final = 32 * 2**20  # unpacked
MAX_LINE_BYTES: Final = 8 * 2**20
MAX_HEADER_BYTES: Final = 1000
MAX_EVENTS: Final = 200_000
MAX_VALUES: Final = 3_000_000
MAX_PATHS_BORN: Final = 20_000
MAX_TREE_BYTES: Final = 2 * 2**20  # of all paths and of all texts together, as written in JSON
_HEADER: Final = {"format": "eab-run", "version": VERSION}


def save(events: Iterable[Event], path: Path | str) -> None:
    """Write a run file; an older file of that name is replaced only once the new one is complete.

    Raises:
        RecordError: The file cannot be written.
    """
    try:
        write_whole(path, dumps(events))
    except OSError as error:
        raise RecordError(
            f"the run cannot be saved as {path}: {error.strerror}. Free some space or choose "
            "another place"
        ) from error


def load(path: Path | str) -> list[Event]:
    """Read a run file.

    Raises:
        RecordError: It cannot be read, or is no valid run file; the message says why.
    """
    try:
        with Path(path).open("rb") as file:  # a device or a pipe does not know its size
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise RecordError(f"the run file {path} cannot be read: {error.strerror}") from error
    return loads(data, str(path))


def dumps(events: Iterable[Event]) -> bytes:
    """A run file as bytes; the same events give the same bytes.

    Raises:
        RecordError: The run is too large for a run file, or holds NaN.
    """
    lines = [_HEADER, *map(to_json, events)]
    try:
        text = "\n".join(json.dumps(line, separators=(",", ":"), allow_nan=False) for line in lines)
    except ValueError as error:
        raise RecordError(
            f"the run cannot be saved: it contains NaN or infinity ({error})"
        ) from error
    _check_amounts(text, "the run")
    return gzip.compress(text.encode("ascii"), mtime=0)


def loads(data: bytes, name: str = "the run file") -> list[Event]:
    """The events in the bytes of a run file; `name` is for the messages.

    Raises:
        RecordError: They are no valid run file; the message says why.
    """
    text = _unpack(data, name)
    _check_amounts(text, name)
    header, *lines = text.split("\n")
    _check_header(header, name)
    state, events = RunFold(), list[Event]()
    for number, line in enumerate(lines, start=2):
        if line:
            events.append(_event(_parse(line, name, number), name, number))
            state.apply(events[-1])
            if state.run is not None:
                _at_most(name, "paths", len(state.run.paths), MAX_PATHS_BORN)
    if not events:
        raise RecordError(f"{name} holds no events")
    _check_run(state.run, name)
    return events


def _unpack(data: bytes, name: str) -> str:
    if len(data) > MAX_FILE_BYTES:
        raise RecordError(
            f"{name} is larger than {MAX_FILE_BYTES // 2**20} MiB; that is not a run file"
        )
    try:
        unpacker = zlib.decompressobj(wbits=31)
        text = unpacker.decompress(data, MAX_TEXT_BYTES)
        if unpacker.unconsumed_tail:
            raise RecordError(
                f"{name} unpacks to more than {MAX_TEXT_BYTES // 2**20} MiB; that is not a run file"
            )
        if not unpacker.eof:
            raise RecordError(f"{name} is cut short; copy or download it again")
        return text.decode("ascii")
    except (zlib.error, UnicodeDecodeError) as error:
        raise RecordError(
            f"{name} is not a run file of the EAB Explorer, or it is damaged ({error})"
        ) from error


def _check_amounts(text: str, name: str) -> None:
    """Limit what costs time and memory to parse, before it is parsed."""
    _at_most(name, "unpacked bytes", len(text), MAX_TEXT_BYTES)
    _at_most(name, "lines", text.count("\n"), MAX_EVENTS)
    _at_most(name, "values", text.count(","), MAX_VALUES)
    _at_most(name, "bytes in its longest line", max(map(len, text.split("\n"))), MAX_LINE_BYTES)


def _check_run(run: Run | None, name: str) -> None:
    """Limit what costs time and memory to show."""
    if run is None:
        return
    own = [sum(_written_bytes(token.text) for token in path.tokens) for path in run.paths]
    whole: list[int] = []  # from the root to the end of each path
    for path in run.paths:  # parents are born before their children
        whole.append(own[path.id] + (whole[path.parent] if path.parent >= 0 else 0))
    total = sum(own) + sum(whole[leaf.id] for leaf in run.leaves())
    _at_most(name, "bytes of text in its tree", total, MAX_TREE_BYTES)


def _written_bytes(text: str) -> int:
    """About the bytes of a token in JSON; an empty one costs time, too."""
    return max(1, len(text)) if text.isascii() else 6 * len(text)


def _at_most(name: str, what: str, count: int, allowed: int) -> None:
    if count > allowed:
        raise RecordError(f"{name} has {count:,} {what}; a run file has at most {allowed:,}")


def _check_header(line: str, name: str) -> None:
    if len(line) > MAX_HEADER_BYTES:
        raise RecordError(
            f"{name} is not a run file of the EAB Explorer (its first line is too long)"
        )
    header = _parse(line, name, 1)
    if not isinstance(header, dict) or header.get("format") != _HEADER["format"]:
        raise RecordError(
            f"{name} is not a run file of the EAB Explorer (its first line does not say so)"
        )
    if header.get("version") != VERSION:
        raise RecordError(
            f"{name} has version {quoted(header.get('version'))}; this program reads version "
            f"{VERSION}"
        )


def _parse(line: str, name: str, number: int) -> Any:
    try:
        return _decoder.decode(line)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{name}, line {number} is not JSON: {error}") from error


def _refuse_number(name: str) -> None:
    raise ValueError(f"{name} is not a number")


_decoder = json.JSONDecoder(parse_constant=_refuse_number)


def _event(value: Any, name: str, number: int) -> Event:
    try:
        return from_json(value)
    except RecordError as error:
        raise RecordError(
            f"{name}, line {number} is not an event of this version: {error}"
        ) from error
