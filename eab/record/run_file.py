"""Save and load run files: gzipped JSON lines, a header with the version and then the events.

A run file is untrusted: its size is limited in every way that costs time or memory, every field is
checked (eab.record.typed_json), and the events must fold. It is never unpickled. A truncated file,
from a killed process or an incomplete copy, is read up to its last complete step.

The limits are just enough for any run that its settings allow.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Final

from eab.config import MAX_NEW_TOKENS, MAX_PATHS, BranchingConfig
from eab.errors import RecordError
from eab.events import Event, Pause, RunEnded, RunStarted
from eab.formatting import quoted
from eab.record import version_2
from eab.record.packed_json import Packer, Unpacker
from eab.record.whole_file import save_whole
from eab.run import RunFold, RunState

MOST_TOKENS: Final = MAX_PATHS * MAX_NEW_TOKENS  # per run, with the largest settings
MAX_LINE_BYTES: Final = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper limits on the size of a run file."""

    text_bytes: int  # bytes of the unpacked file
    lines: int  # its lines
    values: int  # numbers and texts in them
    paths: int  # all paths of the run


SMALL: Final = Limits(32 * 2**20, 200_000, 3_000_000, 20_000)  # allowed for every file
# Limits per token that the settings allow. Real runs have up to 500 bytes, 4 lines, 45 values and
# half a path per token (embedded model and SmolLM2, every policy, four caches, prompt lookup).
OF_A_TOKEN: Final = Limits(4096, 16, 200, 2)
# JSON bytes of the text of all paths plus all leaves: allowed for every file, and per token that
# the file holds. Leaves repeat the text that they share: if every 60th token of 64 paths ends a
# text, they have 80 bytes per token after 2,000 steps.
SMALL_TREE_BYTES: Final = 2 * 2**20
TREE_BYTES_OF_A_TOKEN: Final = 256


class Amounts:
    """Counts the contents of a file, line by line, and refuses files that exceed a limit."""

    def __init__(self, name: str, most_tokens: int = MOST_TOKENS) -> None:
        self.limits = SMALL
        self._name, self._most_tokens = name, most_tokens
        self._bytes = self._lines = self._values = 0

    def allow(self, config: BranchingConfig) -> None:
        """Raise the limits to fit a run with these settings."""
        tokens = min(config.max_paths * config.max_new_tokens, self._most_tokens)
        self.limits = Limits(
            max(SMALL.text_bytes, tokens * OF_A_TOKEN.text_bytes),
            max(SMALL.lines, tokens * OF_A_TOKEN.lines),
            max(SMALL.values, tokens * OF_A_TOKEN.values),
            max(SMALL.paths, tokens * OF_A_TOKEN.paths),
        )

    def add(self, line: str) -> None:
        """Count a line; RecordError if a limit is now exceeded."""
        self._bytes += len(line) + 1
        self._lines += 1
        self._values += line.count(",")
        self.check("bytes in one line", len(line), MAX_LINE_BYTES)
        self.check("unpacked bytes", self._bytes, self.limits.text_bytes)
        self.check("lines", self._lines, self.limits.lines)
        self.check("values", self._values, self.limits.values)

    def check_tree(self, text_bytes: int, tokens: int) -> None:
        """Check the text bytes of a tree with this many tokens."""
        allowed = max(SMALL_TREE_BYTES, tokens * TREE_BYTES_OF_A_TOKEN)
        self.check("bytes of text in its tree", text_bytes, allowed, "number of tokens allows")

    def check(self, what: str, count: int, allowed: int, by: str = "settings allow") -> None:
        """Raise RecordError if `count` is more than is allowed."""
        if count > allowed:
            raise RecordError(f"{self._name} has more than {allowed:,} {what}, more than its {by}")


SUFFIX: Final = ".eab"
LEVEL: Final = 6  # the gzip level
VERSION: Final = 3
MAX_HEADER_BYTES: Final = 1000
_HEADER: Final = {"format": "eab-run", "version": VERSION}
_CHUNK: Final = 2**18  # bytes read and unpacked at a time


def save(events: Iterable[Event], path: Path | str) -> None:
    """Write a run file, replacing an older one only at the end; RecordError if that fails."""
    save_whole(path, dumps(events))


def load(path: Path | str) -> list[Event]:
    """Read a run file; RecordError says why it is invalid."""
    try:
        with Path(path).open("rb") as file:
            return _read(file, str(path), MOST_TOKENS)
    except OSError as error:
        raise RecordError(f"the run file {path} cannot be read: {error.strerror}") from error


def dumps(events: Iterable[Event]) -> bytes:
    """A run file as bytes, the same for the same events; RecordError for NaN or too many events."""
    packed = BytesIO()
    lines = RunLines(packed)
    for event in events:
        lines.add(event)
    lines.close()
    return packed.getvalue()


class RunLines:
    """Packs the lines of a run file; RecordError for NaN or too many events."""

    def __init__(self, file: BinaryIO, level: int = LEVEL) -> None:
        self._amounts, self._packer = Amounts("the run"), Packer()
        self._packed = gzip.GzipFile("", "wb", level, fileobj=file, mtime=0)
        self._between = ""  # the separator after the previous line
        self._add(_HEADER)

    def add(self, event: Event) -> None:
        """Pack an event."""
        if isinstance(event, RunStarted):
            self._amounts.allow(event.config)
        self._add(self._packer.pack(event))

    def flush(self) -> None:
        """End the line and write everything so far to the file."""
        self._packed.write(self._between.encode("ascii"))
        self._between = ""
        self._packed.flush()

    def close(self) -> None:
        """Write the rest and the end of the gzip stream to the file."""
        self._packed.close()

    def _add(self, value: dict[str, Any]) -> None:
        self._amounts.add(line := _line(value))
        self._packed.write((self._between + line).encode("ascii"))
        self._between = "\n"


def _line(value: dict[str, Any]) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise RecordError(
            f"the run cannot be saved: it contains NaN or infinity ({error})"
        ) from error


def loads(data: bytes, name: str = "the run file", most_tokens: int = MOST_TOKENS) -> list[Event]:
    """The events of a run file with at most `most_tokens` tokens; RecordError if it is invalid."""
    return _read(BytesIO(data), name, most_tokens)


def _read(file: BinaryIO, name: str, most_tokens: int) -> list[Event]:
    amounts = Amounts(name, most_tokens)
    state, events = RunFold(), list[Event]()
    try:
        for number, event in _events(file, name, amounts):
            events.append(event)
            _apply(state, event, f"{name}, line {number}")
            if state.run is not None:
                amounts.check("paths", len(state.run.paths), amounts.limits.paths)
    except _BreaksOffError:
        while events and not isinstance(events[-1], Pause | RunStarted):
            events.pop()
        if not events:
            raise RecordError(f"{name} is incomplete; copy or download it again") from None
    if not events:
        raise RecordError(f"{name} contains no events")
    _check_run(state.run, amounts)
    return events


def is_truncated(events: Sequence[Event]) -> bool:
    """Whether a file's events lack an end: the process was killed or the copy is incomplete."""
    return not isinstance(events[-1], RunEnded)


class _BreaksOffError(Exception):
    """The gzip stream is truncated."""


def _apply(state: RunFold, event: Event, place: str) -> None:
    try:
        state.apply(event)
    except RecordError as error:
        raise RecordError(f"{place}: {error}") from error


def _events(file: BinaryIO, name: str, amounts: Amounts) -> Iterator[tuple[int, Event]]:
    """The events of the file, each with the number of the line that completes it."""
    lines = _lines(file, name, amounts)
    amounts.add(header := next(lines))
    unpacker = _unpacker(header, name)
    number = 1
    for number, line in enumerate(lines, start=2):
        amounts.add(line)
        place = f"{name}, line {number}"
        for event in _unpack(unpacker.unpack, _parse(line, place), place) if line else ():
            if isinstance(event, RunStarted):
                amounts.allow(event.config)
            yield number, event
        amounts.check("characters of tokens", unpacker.characters, amounts.limits.text_bytes)
    for event in _unpack(lambda _: unpacker.rest(), None, f"{name}, line {number}"):
        yield number, event


def _lines(file: BinaryIO, name: str, amounts: Amounts) -> Iterator[str]:
    """The lines of the unpacked file; memory holds no more of the file than a line needs."""
    read, pending = 0, ""
    for packed, text in _unpacked(file, name):
        read += packed
        amounts.check("bytes", read, amounts.limits.text_bytes)
        *lines, pending = (pending + text).split("\n")
        yield from lines
        amounts.check("bytes in one line", len(pending), MAX_LINE_BYTES)
    yield pending


def _unpacked(file: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    """Parts of the unpacked file, each with the number of packed bytes read for it."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        while not unpacker.eof:
            packed = unpacker.unconsumed_tail or file.read(_CHUNK)
            text = unpacker.decompress(packed, _CHUNK)  # may include text that did not fit before
            if not (packed or text or unpacker.eof):
                raise _BreaksOffError
            yield len(packed) - len(unpacker.unconsumed_tail), text.decode("ascii")
    except (zlib.error, UnicodeDecodeError) as error:
        raise RecordError(
            f"{name} is not a run file of the EAB Explorer, or it is damaged ({error})"
        ) from error


def _check_run(run: RunState | None, amounts: Amounts) -> None:
    """Limit how much text the tree has, because showing it costs time and memory."""
    if run is None:
        return
    own = [sum(_written_bytes(token.text) for token in path.tokens) for path in run.paths]
    whole: list[int] = []  # from the root to the end of each path
    for path in run.paths:  # parents are born before their children
        whole.append(own[path.id] + (whole[path.parent] if path.parent >= 0 else 0))
    total = sum(own) + sum(whole[leaf.id] for leaf in run.leaves())
    amounts.check_tree(total, sum(len(path.tokens) for path in run.paths))


def _written_bytes(text: str) -> int:
    """The approximate bytes of a token in JSON; at least 1, because empty tokens also cost time."""
    return max(1, len(text)) if text.isascii() else 6 * len(text)


def _unpacker(line: str, name: str) -> Unpacker | version_2.Version2Unpacker:
    """The unpacker for a file with this first line."""
    if len(line) > MAX_HEADER_BYTES:
        raise RecordError(
            f"{name} is not a run file of the EAB Explorer (its first line is too long)"
        )
    header = _parse(line, f"{name}, line 1")
    if not isinstance(header, dict) or header.get("format") != _HEADER["format"]:
        raise RecordError(
            f"{name} is not a run file of the EAB Explorer (its first line does not say so)"
        )
    match header.get("version"):
        case int(version) if version == VERSION:
            return Unpacker()
        case int(version) if version == version_2.VERSION:
            return version_2.Version2Unpacker()
    raise RecordError(
        f"{name} has version {quoted(header.get('version'))}; this program reads versions "
        f"{version_2.VERSION} and {VERSION}"
    )


def _parse(line: str, place: str) -> Any:
    try:
        return _decoder.decode(line)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{place} is not JSON: {error}") from error


def _refuse_number(name: str) -> None:
    raise ValueError(f"{name} is not a number")


_decoder = json.JSONDecoder(parse_constant=_refuse_number)


def _unpack(unpack: Callable[[Any], list[Event]], value: Any, place: str) -> list[Event]:
    try:
        return unpack(value)
    except RecordError as error:
        raise RecordError(f"{place} is not an event of this version: {error}") from error
