"""Save and load run files: gzip of JSON lines, first a header with the version, then the events.

A run file is untrusted: sizes are limited, every field is checked for its type and range, and the
events must fold. It is never unpickled.
"""

import gzip
import json
import math
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_origin

import cattrs
from cattrs.strategies import configure_tagged_union

from eab.config import AUTO, MAX_SEED
from eab.errors import ConfigError, RecordError
from eab.events import Event, RunEnded, RunStarted, Speculated, Within
from eab.run import fold_prefix

SUFFIX: Final = ".eab"
VERSION: Final = 2
MAX_FILE_BYTES: Final = 32 * 2**20
MAX_TEXT_BYTES: Final = 64 * 2**20
MAX_EVENTS: Final = 1_000_000
MAX_PROMPT_TOKENS: Final = 200_000
_HEADER: Final = {"format": "eab-run", "version": VERSION}


def save(events: Iterable[Event], path: Path | str) -> None:
    """Write a run file; an older file of that name is replaced only once the new one is complete.

    Raises:
        RecordError: The file cannot be written.
    """
    write_whole(dumps(events), Path(path), "the run")


def write_whole(data: bytes, path: Path, what: str) -> None:
    """Write a file; an older file of that name is replaced only once the new one is complete.

    Args:
        data: The bytes of the file.
        path: Where it is written.
        what: What the file is, for the message.

    Raises:
        RecordError: The file cannot be written.
    """
    scratch = path.with_name(path.name + ".part")
    try:
        scratch.write_bytes(data)
        os.replace(scratch, path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise RecordError(
            f"{what} cannot be saved as {path}: {error.strerror}. Free some space or choose "
            "another place"
        ) from error


def load(path: Path | str) -> list[Event]:
    """Read a run file.

    Raises:
        RecordError: It cannot be read, or is no valid run file; the message says why.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise RecordError(
                f"{path} is larger than {MAX_FILE_BYTES // 2**20} MiB; that is not a run file"
            )
        return loads(path.read_bytes(), str(path))
    except OSError as error:
        raise RecordError(f"the run file {path} cannot be read: {error.strerror}") from error


def dumps(events: Iterable[Event]) -> bytes:
    """A run file as bytes; the same events give the same bytes."""
    lines = [_HEADER, *(_converter.unstructure(event, Event) for event in events)]
    try:
        text = "\n".join(json.dumps(line, separators=(",", ":"), allow_nan=False) for line in lines)
    except ValueError as error:
        raise RecordError(
            f"the run cannot be saved: it contains NaN or infinity ({error})"
        ) from error
    return gzip.compress(text.encode("ascii"), mtime=0)


def loads(data: bytes, name: str = "the run file") -> list[Event]:
    """The events in the bytes of a run file; `name` is for the messages."""
    text = _unpack(data, name)
    if text.count("\n") > MAX_EVENTS:
        raise RecordError(f"{name} holds more than {MAX_EVENTS:,} events; that is not a run file")
    lines = text.split("\n")
    header = _parse(lines[0], name, 1)
    if not isinstance(header, dict) or header.get("format") != _HEADER["format"]:
        raise RecordError(
            f"{name} is not a run file of the EAB Explorer (its first line does not say so)"
        )
    if header.get("version") != VERSION:
        raise RecordError(
            f"{name} has version {header.get('version')!r}; this program reads version {VERSION}"
        )
    events = [
        _event(_parse(line, name, number), name, number)
        for number, line in enumerate(lines[1:], start=2)
        if line
    ]
    if not events:
        raise RecordError(f"{name} holds no events")
    fold_prefix(events)
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


def _parse(line: str, name: str, number: int) -> Any:
    try:
        return json.loads(line, parse_constant=_refuse_number)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{name}, line {number} is not JSON: {error}") from error


def _event(value: Any, name: str, number: int) -> Event:
    try:
        event: Event = _converter.structure(value, Event)  # type: ignore[arg-type]
        _check_consistency(event)
        return event
    except Exception as error:  # cattrs raises what the value provokes, in groups
        why = "; ".join(_reasons(error))
        raise RecordError(
            f"{name}, line {number} is not an event of this version: {why[:300]}"
        ) from error


def _check_consistency(event: Event) -> None:
    """ValueError for fields that contradict each other; readers of a loaded run rely on them."""
    match event:
        case RunStarted():
            for model in filter(None, (event.model, event.draft)):
                texts = (model.name, model.family, model.dtype, model.device)
                "".join((*texts, model.weights, model.layout)).encode("utf-8")
            (event.prompt + event.config.system).encode("utf-8")
            tokens = len(event.prompt_tokens)
            _within("the length of the prompt", tokens, 1, MAX_PROMPT_TOKENS)
            _within("the number of its texts", len(event.prompt_texts), tokens, tokens)
            _within("continued", event.continued, 0, tokens)
        case Speculated():
            drafted = len(event.draft_tokens)
            _within("verified", event.verified, 0, drafted)
            _within("accepted", event.accepted, max(0, event.verified - 1), event.verified)
            _within("the number of texts", len(event.draft_texts), drafted, drafted)
        case RunEnded():
            event.message.encode("utf-8")


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {value!r:.40}; it must lie between {low:g} and {high:g}")


def _reasons(error: BaseException) -> list[str]:
    """What went wrong: the message of a setting, or cattrs' path to the bad field."""
    if isinstance(error, ConfigError):
        return [str(error)]
    if isinstance(error, BaseExceptionGroup):
        words = [
            reason
            for inner in error.exceptions
            for reason in _reasons(inner)
            if _has_config_error(inner)
        ]
        return words or cattrs.transform_error(error, format_exception=_in_words)
    return [repr(error)]


def _in_words(error: BaseException, kind: type | None) -> str:
    """Our own words for a range that a value is out of, else those of cattrs."""
    return str(error) if isinstance(error, _RangeError) else cattrs.v.format_exception(error, kind)


def _has_config_error(error: BaseException) -> bool:
    """Whether a ConfigError is among its causes."""
    if isinstance(error, BaseExceptionGroup):
        return any(_has_config_error(inner) for inner in error.exceptions)
    return isinstance(error, ConfigError)


def _refuse_number(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (int, float, str, bool):
        converter.register_structure_hook(kind, _exactly)
    converter.register_structure_hook(
        int | Literal["auto"], lambda value, _: value if value == AUTO else _exactly(value, int)
    )
    converter.register_structure_hook_func(_has_range, _in_range)
    configure_tagged_union(Event, converter, tag_name="event")
    return converter


class _RangeError(ValueError):
    """A number in a run file is out of the range that its field declares."""


def _has_range(kind: Any) -> bool:
    return get_origin(kind) is Annotated and isinstance(kind.__metadata__[0], Within)


def _in_range(value: Any, kind: Any) -> Any:
    number = _exactly(value, kind.__origin__)
    low, high = kind.__metadata__[0]
    if not low <= number <= high:
        raise _RangeError(f"{value!r:.40} must lie between {low:g} and {high:g}")
    return number


def _exactly(value: Any, kind: Any) -> Any:
    """No coercion: "3" is not 3, and True is not 1; only a whole float may arrive as an int."""
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind is str and type(value) is str:
        value.encode(
            "utf-8", "surrogateescape"
        )  # no other lone surrogates than those of token_text
        return value
    if kind is int and type(value) is int and abs(value) <= MAX_SEED:
        return value
    if kind is bool and type(value) is bool:
        return value
    raise TypeError(f"expected {kind.__name__}, got {value!r:.40}")


_converter = _make_converter()
