"""Read values from JSON or TOML into the dataclass that declares them, events among them, and back.

Values are not coerced: "3" is not 3, and True is not 1. The limits of numbers, texts and lists are
declared with the fields (msgspec.Meta). The length of a list is checked before its elements, and
reading stops at the first bad element, so a hostile file costs little.
"""

import json
import math
import re
import threading
from dataclasses import fields, is_dataclass
from functools import cache, reduce
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from eab.errors import EabError, RecordError
from eab.events import Event, PathFinished, Predicted, RunEnded, RunStarted, Speculated
from eab.events.chat import read_messages, title_of
from eab.formatting import quoted

Surrogates = Literal["strict", "surrogateescape"]

_T = TypeVar("_T")
_INSPECTED: Final[set[Any]] = set()  # the types that msgspec knows
_INSPECTING: Final = threading.Lock()
_STEP_OF_PLACE: Final = re.compile(r"\.(\w+)|\[(\d+)\]")


class NotDeclaredError(ValueError):
    """A value does not match its field; the message says where, and what was expected."""


def read(value: Any, kind: type[_T], *, surrogates: Surrogates = "strict") -> _T:
    """Read a JSON object or TOML table into this dataclass of plain values and dataclasses;
    NotDeclaredError if it does not match the dataclass.

    Args:
        surrogates: Whether texts may contain lone surrogates that stand for bytes (see
            `eab.token_text`).
    """
    _inspect(kind)
    try:
        made = msgspec.convert(value, kind)
        _check_names(value, made)
        _check_texts(value, surrogates)
        return made
    except msgspec.ValidationError as error:
        raise NotDeclaredError(_explained(error, value, kind)) from error
    except UnicodeEncodeError as error:
        raise NotDeclaredError(f"{quoted(error.object)} is not valid text") from error


def _inspect(kind: type[Any]) -> None:
    """Let msgspec inspect a type, one thread at a time: the process crashes if a thread meets a
    dataclass that another one is inspecting (msgspec 0.22).
    """
    if kind not in _INSPECTED:
        with _INSPECTING:
            msgspec.json.Decoder(kind)
            _INSPECTED.add(kind)


def _explained(error: msgspec.ValidationError, value: Any, kind: Any) -> str:
    if isinstance(error.__cause__, EabError):  # raised by a dataclass that checks itself
        return str(error.__cause__)
    words, _, place = str(error).replace("`", "").partition(" - at $")
    steps = _STEP_OF_PLACE.findall(place)
    words = words[0].lower() + words[1:]
    if "[...]" in place:  # one of the values of a dict; msgspec does not say which
        return f"{place.lstrip('.')}: {words}"
    expected = words.partition(", got ")[0]
    for name, index in steps:
        value = value[name or int(index)]
    if expected.startswith("invalid enum value"):
        declared = reduce(_inner, [name for name, _ in steps], kind)
        expected = f"expected one of: {', '.join(_choices(declared))}"
    got = f"a length of {len(value):,}" if "of length" in expected else quoted(value)
    return f"{place.lstrip('.')}: {expected}, got {got}".lstrip(": ")


def _inner(kind: Any, name: str) -> Any:
    """The declared type of a field, or of a tuple's elements if `name` is empty."""
    if name:
        owner = next(part for part in (kind, *get_args(kind)) if is_dataclass(part))
        return get_type_hints(owner)[name]
    return next(part for part in (kind, *get_args(kind)) if get_origin(part) is tuple).__args__[0]


def _choices(kind: Any) -> list[str]:
    """The words that a type allows, as written in TOML and JSON."""
    if get_origin(kind) is Literal:
        return [json.dumps(word) for word in get_args(kind)]
    return [word for part in get_args(kind) for word in _choices(part)]


def _check_names(given: Any, made: Any) -> None:
    """Refuse keys that are not fields, because msgspec ignores them."""
    if not is_dataclass(made):
        return
    if unknown := given.keys() - _names(made.__class__):
        raise NotDeclaredError(f"{quoted(min(unknown))} is unknown here; remove it, or correct it")
    for name, value in given.items():
        if isinstance(value, dict):
            _check_names(value, getattr(made, name))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for inner, part in zip(value, getattr(made, name), strict=True):
                _check_names(inner, part)


def _check_texts(value: Any, surrogates: Surrogates) -> None:
    """Raise UnicodeEncodeError for a text that cannot be written as UTF-8."""
    if isinstance(value, str):
        if not value.isascii():
            value.encode("utf-8", surrogates)
    elif isinstance(value, list):
        for element in value:
            _check_texts(element, surrogates)
    elif isinstance(value, dict):
        for name, element in value.items():
            if not name.isascii():
                name.encode("utf-8", surrogates)
            _check_texts(element, surrogates)


@cache
def _names(kind: type[Any]) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind))


_KINDS: Final = {kind.__name__: kind for kind in get_args(Event)}


def to_json(event: Event) -> dict[str, Any]:
    """The event as JSON values, with the name of its class as `event`."""
    made: dict[str, Any] = msgspec.to_builtins(event) | {"event": type(event).__name__}
    for name in ("logits_processors", "parse_special", "by_token_ids", "imported"):
        if not made.get(name, True):
            del made[name]  # so that older versions of the program can read the file
    if made.get("reward", "") is None:
        del made["reward"]
    return made


def from_json(value: Any) -> Event:
    """The event described by JSON values; RecordError says what is wrong."""
    if type(value) is not dict:
        raise RecordError(f"expected an object, got {quoted(value)}")
    name = value.get("event")
    if not isinstance(name, str) or name not in _KINDS:
        raise RecordError(f"there is no event {quoted(name)}")
    try:
        own = {key: value[key] for key in value if key != "event"}
        event: Event = read(own, _KINDS[name], surrogates="surrogateescape")
        _check_consistency(event)
        return event
    except ValueError as error:
        raise RecordError(str(error)) from error


def _check_consistency(event: Event) -> None:
    """Raise ValueError if fields contradict each other; readers of a loaded run rely on this."""
    match event:
        case RunStarted():
            for model in filter(None, (event.model, event.draft)):
                texts = (model.name, model.family, model.dtype, model.device)
                "".join((*texts, model.weights, model.layout)).encode("utf-8")
            event.prompt.encode("utf-8")
            "".join(event.logits_processors).encode("utf-8")
            if event.messages and event.prompt != title_of(read_messages(event.messages)):
                raise ValueError("prompt is not the title of the messages")
            tokens = len(event.prompt_tokens)
            _within("the length of the prompt", tokens, 1, math.inf)
            _within("the number of its texts", len(event.prompt_texts), tokens, tokens)
            _within("continued", event.continued, 0, tokens)
        case Predicted():
            for bounds in [seen.whole for seen in event.predictions if seen.whole is not None]:
                _within("whole", bounds.low, 0.0, bounds.high)
        case Speculated():
            drafted = len(event.draft_tokens)
            _within("verified", event.verified, 0, drafted)
            _within("accepted", event.accepted, max(0, event.verified - 1), event.verified)
            _within("the number of texts", len(event.draft_texts), drafted, drafted)
        case RunEnded():
            event.message.encode("utf-8")
        case PathFinished(reward=str(reward)):
            reward.encode("utf-8")


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {quoted(value)}; it must be from {low:g} to {high:g}")
