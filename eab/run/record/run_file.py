"""Run files: gzipped JSON lines, a header with the version and then an event a line.

    {"format":"eab-run","version":1}
    {"event":"RunStarted","prompt":"Once","prompt_tokens":[403],...}
    {"event":"Predicted","step":0,"predictions":[[0,1.25,[[263," upon",0.5],...],null]]}

An event is written as its class declares it (eab.run.events); tuples and candidates are arrays. A
token that is a part of a character has lone surrogates in its text, as escapes.

A run file is untrusted: its size is limited in every way that costs time or memory, every field is
checked against its declaration, and the events must fold. It is never unpickled. A truncated file,
from a killed process or an incomplete copy, is read up to its last complete step.

The limits are just enough for any run that its settings allow.
"""

import gzip
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final, Literal, get_args

import msgspec
from msgspec import structs

from eab.config import MAX_NEW_TOKENS, MAX_PATHS, BranchingConfig
from eab.errors import RecordError
from eab.formatting import quoted
from eab.run import RunFold, RunState
from eab.run.events import (
    Event,
    Labelled,
    PathFinished,
    Pause,
    Predicted,
    RunEnded,
    RunStarted,
    Speculated,
    TextScored,
    TokensAppended,
)
from eab.run.events.chat import read_messages, title_of
from eab.text_values import decoder, read

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
# Limits per token that the settings allow. Real runs have up to 750 bytes, 4 lines, 60 values and
# half a path per token (embedded model and SmolLM2, every policy, four caches, prompt lookup).
OF_A_TOKEN: Final = Limits(4096, 16, 200, 2)
# And per path: under best-first, a pass of one path measures those that wait, too.
BYTES_OF_A_WAITING_PATH: Final = 48
VALUES_OF_A_WAITING_PATH: Final = 4
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
        waiting = 0 if config.by_step else config.max_paths
        text_bytes = OF_A_TOKEN.text_bytes + waiting * BYTES_OF_A_WAITING_PATH
        values = OF_A_TOKEN.values + waiting * VALUES_OF_A_WAITING_PATH
        self.limits = Limits(
            max(SMALL.text_bytes, tokens * text_bytes),
            max(SMALL.lines, tokens * OF_A_TOKEN.lines),
            max(SMALL.values, tokens * values),
            max(SMALL.paths, tokens * OF_A_TOKEN.paths),
        )

    def add(self, line: bytes) -> None:
        """Count a line; RecordError if a limit is now exceeded."""
        self._bytes += len(line) + 1
        self._lines += 1
        self._values += line.count(b",")
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
VERSION: Final = 1
_CHUNK: Final = 2**18  # bytes read and unpacked at a time


class _Header(msgspec.Struct):
    format: Literal["eab-run"]
    version: int


# ---- one event


def encode(event: Event) -> bytes:
    """The event as a line of JSON; RecordError for NaN, and for what could not be read again."""
    # null stands for a number that is not known, and msgspec also writes it for these
    if not math.isfinite(sum(number or 0.0 for number in _may_be_unknown(event))):
        raise RecordError("the run cannot be saved: it contains NaN or infinity")
    try:
        line = msgspec.json.encode(event)
    except UnicodeEncodeError:  # a part of a character
        values = msgspec.to_builtins(event)
        line = json.dumps(values, separators=(",", ":")).encode("ascii")
    try:
        decode(line)
    except RecordError as error:
        raise RecordError(f"the run cannot be saved: {error}") from error
    return line


def _may_be_unknown(event: Event) -> list[float | None]:
    match event:
        case TokensAppended():
            return [new.log_prob for new in event.tokens]
        case Predicted():
            return [seen.entropy for seen in event.predictions]
        case TextScored():
            seen = [seen.entropy for seen in event.predictions]
            return [*(new.log_prob for new in event.tokens), *seen, *event.model_log_probs]
    return []


def decode(line: bytes) -> Event:
    """The event of a line; RecordError says what is wrong."""
    try:
        event: Event = _EVENT.decode(line)
        if isinstance(event, RunStarted):  # may have unknown settings
            event = _read(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        event = _read(line)  # may have parts of characters; otherwise, this says what is wrong
    try:
        _check_consistency(event)
    except UnicodeEncodeError as error:
        raise RecordError(f"{quoted(error.object)} is not valid text") from error
    except ValueError as error:
        raise RecordError(str(error)) from error
    return event


def _read(line: bytes) -> Event:
    """The same event as msgspec decodes, more slowly; RecordError says what is wrong."""
    try:
        value = _JSON.decode(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RecordError(f"it is not JSON: {error}") from error
    if type(value) is not dict:
        raise RecordError(f"expected an object, got {quoted(value)}")
    name = value.get("event")
    if not isinstance(name, str) or name not in _KINDS:
        raise RecordError(f"there is no event {quoted(name)}")
    try:
        event: Event = read(value, _KINDS[name], surrogates="surrogateescape")
    except ValueError as error:
        raise RecordError(str(error)) from error
    return event


def _refuse_number(name: str) -> None:
    raise ValueError(f"{name} is not a number")


_JSON: Final = json.JSONDecoder(parse_constant=_refuse_number)
_EVENT: Final = decoder(Event)
_HEADER: Final = decoder(_Header)
_KINDS: Final = {kind.__name__: kind for kind in get_args(Event)}


def _check_consistency(event: Event) -> None:
    """Raise ValueError if fields contradict each other; readers of a loaded run rely on this."""
    match event:
        case RunStarted():
            msgspec.json.encode(structs.replace(event, prompt_texts=()))  # no parts of characters
            if event.messages and event.prompt != title_of(read_messages(event.messages)):
                raise ValueError("prompt is not the title of the messages")
            tokens = len(event.prompt_tokens)
            _within("the length of the prompt", tokens, 1, math.inf)
            _within("the number of its texts", len(event.prompt_texts), tokens, tokens)
            _within("continued", event.continued, 0, tokens)
        case Predicted() | TextScored():
            for bounds in [seen.whole for seen in event.predictions if seen.whole is not None]:
                _within("whole", bounds.low, 0.0, bounds.high)
        case Speculated():
            drafted = len(event.draft_tokens)
            _within("verified", event.verified, 0, drafted)
            _within("accepted", event.accepted, max(0, event.verified - 1), event.verified)
            _within("the number of texts", len(event.draft_texts), drafted, drafted)
        case RunEnded() | Labelled() | PathFinished():
            msgspec.json.encode(event)


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {quoted(value)}; it must be from {low:g} to {high:g}")


# ---- writing


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
        self._amounts = Amounts("the run")
        self._packed = gzip.GzipFile("", "wb", level, fileobj=file, mtime=0)
        self._add(msgspec.json.encode(_Header("eab-run", VERSION)))

    def add(self, event: Event) -> None:
        """Pack an event."""
        if isinstance(event, RunStarted):
            self._amounts.allow(event.config)
        self._add(encode(event))

    def flush(self) -> None:
        """Write everything so far to the file."""
        self._packed.flush()

    def close(self) -> None:
        """Write the rest and the end of the gzip stream to the file."""
        self._packed.close()

    def _add(self, line: bytes) -> None:
        self._amounts.add(line)
        self._packed.write(line + b"\n")


# ---- reading


def load(path: Path | str) -> list[Event]:
    """Read a run file; RecordError says why it is invalid."""
    try:
        with Path(path).open("rb") as file:
            return _load(file, str(path), MOST_TOKENS)
    except OSError as error:
        raise RecordError(f"the run file {path} cannot be read: {error.strerror}") from error


def loads(data: bytes, name: str = "the run file", most_tokens: int = MOST_TOKENS) -> list[Event]:
    """The events of a run file with at most `most_tokens` tokens; RecordError if it is invalid."""
    return _load(BytesIO(data), name, most_tokens)


def is_truncated(events: Sequence[Event]) -> bool:
    """Whether a file's events lack an end: the process was killed or the copy is incomplete."""
    return not any(isinstance(event, RunEnded) for event in events)


def _load(file: BinaryIO, name: str, most_tokens: int) -> list[Event]:
    amounts = Amounts(name, most_tokens)
    state, events = RunFold(), list[Event]()
    try:
        lines = _lines(file, name, amounts)
        _check_header(next(lines), name)
        for number, line in enumerate(lines, start=2):
            if not line:
                continue
            event = _apply(state, line, f"{name}, line {number}")
            events.append(event)
            if isinstance(event, RunStarted):
                amounts.allow(event.config)
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


class _BreaksOffError(Exception):
    """The gzip stream is truncated."""


def _check_header(line: bytes, name: str) -> None:
    try:
        header = _HEADER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(
            f"{name} is not a run file of the EAB Explorer (its first line does not say so)"
        ) from error
    if header.version != VERSION:
        raise RecordError(
            f"{name} has version {header.version}; this program reads version {VERSION}. Update "
            "it, or make the run again"
        )


def _apply(state: RunFold, line: bytes, place: str) -> Event:
    try:
        event = decode(line)
    except RecordError as error:
        raise RecordError(f"{place} is not an event of this version: {error}") from error
    try:
        state.apply(event)
    except RecordError as error:
        raise RecordError(f"{place}: {error}") from error
    return event


def _lines(file: BinaryIO, name: str, amounts: Amounts) -> Iterator[bytes]:
    """The lines of the unpacked file; memory holds no more of the file than a line needs."""
    read, pending = 0, b""
    for packed, text in _unpacked(file, name):
        read += packed
        amounts.check("bytes", read, amounts.limits.text_bytes)
        *lines, pending = (pending + text).split(b"\n")
        for line in lines:
            amounts.add(line)
            yield line
        amounts.check("bytes in one line", len(pending), MAX_LINE_BYTES)
    amounts.add(pending)
    yield pending


def _unpacked(file: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    """Parts of the unpacked file, each with the number of packed bytes read for it."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        while not unpacker.eof:
            packed = unpacker.unconsumed_tail or file.read(_CHUNK)
            text = unpacker.decompress(packed, _CHUNK)  # may include text that did not fit before
            if not (packed or text or unpacker.eof):
                raise _BreaksOffError
            yield len(packed) - len(unpacker.unconsumed_tail), text
    except zlib.error as error:
        raise RecordError(
            f"{name} is not a run file of the EAB Explorer, or it is damaged ({error})"
        ) from error


def _check_run(run: RunState | None, amounts: Amounts) -> None:
    """Limit how much text the tree has, because showing it costs time and memory."""
    if run is None:
        return
    own = [sum(_written_bytes(token.text) for token in path.tokens) for path in run.paths]
    whole = {-1: 0}  # from the root to the end of each path
    for path in run.in_tree_order():
        whole[path.id] = own[path.id] + whole[path.parent]
    total = sum(own) + sum(whole[leaf.id] for leaf in run.leaves())
    amounts.check_tree(total, sum(len(path.tokens) for path in run.paths))


def _written_bytes(text: str) -> int:
    """The approximate bytes of a token in JSON; at least 1, because empty tokens also cost time."""
    return max(1, len(text)) if text.isascii() else 6 * len(text)
