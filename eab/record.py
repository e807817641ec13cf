"""Save and load runs: gzip of JSON lines, a header with the version first, then one event per line. Never pickle.

A run file is untrusted: sizes are limited, every field is checked for its type, and the events must fold.
"""

import gzip
import json
import math
import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, Literal

import cattrs
from cattrs.strategies import configure_tagged_union

from eab.config import AUTO, MAX_SEED
from eab.errors import ConfigError, RecordError
from eab.events import (
    Event,
    Forked,
    KvMeasured,
    Predicted,
    Probed,
    Reweighted,
    RowsAllocated,
    RunEnded,
    RunStarted,
    Speculated,
    StepTimed,
    TokenAppended,
)
from eab.run import fold

SUFFIX: Final = ".eab"
VERSION: Final = 1
MAX_FILE_BYTES: Final = 32 * 2**20
MAX_TEXT_BYTES: Final = 64 * 2**20
MAX_EVENTS: Final = 1_000_000
MAX_NATS: Final = 100.0
MAX_STEPS: Final = 2**20
MAX_PROMPT_TOKENS: Final = 200_000
_COUNTS: Final = tuple(field.name for field in fields(KvMeasured) if field.name not in ("step", "paths"))
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
    text = _unpack(data, name)
    if text.count("\n") > MAX_EVENTS:
        raise RecordError(f"{name} holds more than {MAX_EVENTS:,} events; that is no run file")
    lines = text.split("\n")
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
        _check_ranges(event)
        return event
    except Exception as error:  # cattrs raises what the value provokes, in groups
        why = "; ".join(_reasons(error))
        raise RecordError(f"{name}, line {number} is no event of this version: {why[:300]}") from error


def _check_ranges(event: Event) -> None:
    """ValueError for numbers and texts that no run can hold, so that whoever shows a loaded run need not ask."""
    match event:
        case RunStarted():
            _within("threshold_nats", event.threshold_nats, 0.0, MAX_NATS)
            for model in filter(None, (event.model, event.draft)):
                _within("row_bytes", model.row_bytes, 1, 2**40)
                _within("vocab_size", model.vocab_size, 1, 2**40)
                (model.name + model.family + model.dtype + model.device).encode("utf-8")
            (event.prompt + event.config.system).encode("utf-8")
            _within("the length of the prompt", len(event.prompt_tokens), 1, MAX_PROMPT_TOKENS)
            _within("the number of its texts", len(event.prompt_texts), *[len(event.prompt_tokens)] * 2)
            _within("continued", event.continued, 0, len(event.prompt_tokens))
            _tokens(event.prompt_tokens)
        case Predicted():
            _within("entropy", event.entropy, 0.0, MAX_NATS)
            _tokens([candidate.token for candidate in event.candidates])
        case Probed():
            _within("entropy", event.entropy, 0.0, MAX_NATS)
        case Speculated():
            _within("judged", event.judged, 0, len(event.drafted))
            _within("accepted", event.accepted, max(0, event.judged - 1), event.judged)
            _within("step", event.step, 0, MAX_STEPS)
            _tokens(event.drafted)
            _within("the number of texts", len(event.texts), len(event.drafted), len(event.drafted))
        case TokenAppended():
            _within("log_prob", event.log_prob, -1e6, 1e-3)
            _tokens((event.token,))
        case Forked():
            for weight in event.weights:
                _within("weight", weight, 0.0, 1.001)
        case Reweighted():
            _within("weight", event.weight, 0.0, 1.001)
        case KvMeasured():
            for name in _COUNTS:
                _within(name, getattr(event, name), 0, 2**50)
        case RowsAllocated():
            for name in ("rows", "rows_copied", "bytes_copied", "peak_bytes", "r"):
                _within(name, getattr(event, name), 0, 2**50)
        case StepTimed():
            _within("tokens", event.tokens, 0, 2**40)
            for seconds in (event.seconds, event.forward_seconds, event.draft_seconds):
                _within("seconds", seconds, 0.0, 1e9)
        case RunEnded():
            event.message.encode("utf-8")


def _tokens(tokens: Sequence[int]) -> None:
    for token in tokens:
        _within("token", token, 0, 2**40)


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {value!r:.40}; it must lie between {low:g} and {high:g}")


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
    converter.register_structure_hook(
        int | Literal["auto"], lambda value, _: value if value == AUTO else _exactly(value, int)
    )
    configure_tagged_union(Event, converter, tag_name="event")
    return converter


def _exactly(value: Any, kind: Any) -> Any:
    """No coercion: "3" is not 3, and True is not 1; only a whole float may arrive as an int."""
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind is str and type(value) is str:
        value.encode("utf-8", "surrogateescape")  # no other lone surrogates than those of token_text
        return value
    if kind is int and type(value) is int and abs(value) <= MAX_SEED:
        return value
    if kind is bool and type(value) is bool:
        return value
    raise TypeError(f"expected {kind.__name__}, got {value!r:.40}")


_converter = _make_converter()
