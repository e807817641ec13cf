"""Limits of event fields: the range of each number, the length of each text and list. And reading
values from JSON or TOML into the dataclass or msgspec Struct that declares them.

Run files are untrusted, so msgspec checks these limits when it reads one (eab.run.record.run_file).
The limits are wider than anything that the engine produces. Values are not coerced: "3" is not 3,
and True is not 1. The length of a list is checked before its elements, and reading stops at the
first bad element, so a hostile file costs little.
"""

import json
import re
import threading
from dataclasses import fields, is_dataclass
from functools import cache, reduce
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from eab.config import MAX_DRAFT, MAX_LABEL, MAX_NEW_TOKENS, MAX_PATHS, MAX_SEED
from eab.errors import EabError
from eab.formatting import quoted
from eab.settings import MAX_TEXT

MAX_PROMPT_TOKENS: Final = 200_000
MAX_TOKEN_CHARACTERS: Final = 1000  # the longest tokens of known vocabularies have about 130
MAX_CANDIDATES: Final = 16
MAX_MESSAGES: Final = 256
MAX_ROLE: Final = 32  # characters
MAX_PROCESSORS: Final = 64
MAX_LAYERS: Final = 1024  # per model
MAX_RULES: Final = 1000
MAX_RULE: Final = 500  # characters of a pattern


Whole = Annotated[int, Meta(ge=-MAX_SEED, le=MAX_SEED)]
PathId = Whole
TokenId = Annotated[int, Meta(ge=0, le=2**40)]
StepIndex = Annotated[int, Meta(ge=0, le=MAX_NEW_TOKENS)]
Count = Annotated[int, Meta(ge=0, le=2**50)]  # of rows, bytes or tokens
Size = Annotated[int, Meta(ge=1, le=2**40)]  # a dimension of a model
Nats = Annotated[float, Meta(ge=0.0, le=100.0)]
LogProb = Annotated[float, Meta(ge=-1e6, le=1e-3)]  # nats; rounding may raise it slightly above 0
Weight = Annotated[float, Meta(ge=0.0, le=1.001)]
Probability = Annotated[float, Meta(ge=0.0, le=1.001)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e9)]

Role = Annotated[str, Meta(max_length=MAX_ROLE)]
PromptText = Annotated[str, Meta(max_length=MAX_TEXT)]
TokenText = Annotated[str, Meta(max_length=MAX_TOKEN_CHARACTERS)]
ModelName = Annotated[str, Meta(max_length=4096)]  # may be the path of a folder
Reward = Annotated[float, Meta(ge=-1e9, le=1e9)] | Annotated[str, Meta(max_length=100)]
Word = Annotated[str, Meta(max_length=100)]  # a device, a number format, a model family
Message = Annotated[str, Meta(max_length=10_000)]
LabelName = Annotated[str, Meta(min_length=1, max_length=MAX_LABEL)]
RuleText = Annotated[str, Meta(max_length=MAX_RULE)]

# For tuples: Annotated[tuple[TokenId, ...], PER_PROMPT]
PER_PROMPT: Final = Meta(max_length=MAX_PROMPT_TOKENS)
PER_CHAT: Final = Meta(max_length=MAX_MESSAGES)
PER_MODEL: Final = Meta(max_length=MAX_LAYERS)
PER_PROCESSOR: Final = Meta(max_length=MAX_PROCESSORS)
PER_RUN: Final = Meta(max_length=MAX_RULES)
PER_STEP: Final = Meta(max_length=MAX_PATHS)
PER_PATH: Final = Meta(max_length=MAX_NEW_TOKENS)
PER_TEXT: Final = Meta(min_length=1, max_length=MAX_NEW_TOKENS)
PER_DRAFT: Final = Meta(max_length=MAX_DRAFT)
PER_PREDICTION: Final = Meta(max_length=MAX_CANDIDATES)


Surrogates = Literal["strict", "surrogateescape"]

_T = TypeVar("_T")
_INSPECTING: Final = threading.Lock()
_STEP_OF_PLACE: Final = re.compile(r"\.(\w+)|\[(\d+)\]")


class NotDeclaredError(ValueError):
    """A value does not match its field; the message says where, and what was expected."""


def read(value: Any, kind: type[_T], *, surrogates: Surrogates = "strict") -> _T:
    """Read a JSON object or TOML table into this type; NotDeclaredError if it does not match.

    Args:
        surrogates: Whether texts may contain lone surrogates that stand for bytes (see
            `eab.token_text`).
    """
    decoder(kind)  # type: ignore[arg-type]
    try:
        made = msgspec.convert(value, kind)
        _check_names(value, made)
        _check_texts(value, surrogates)
        return made
    except msgspec.ValidationError as error:
        raise NotDeclaredError(_explained(error, value, kind)) from error
    except UnicodeEncodeError as error:
        raise NotDeclaredError(f"{quoted(error.object)} is not valid text") from error


@cache
def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """The JSON decoder of a type.

    msgspec inspects types here, one thread at a time: the process crashes if a thread meets a
    dataclass that another one is inspecting (msgspec 0.22).
    """
    with _INSPECTING:
        return msgspec.json.Decoder(kind)


def _explained(error: msgspec.ValidationError, value: Any, kind: Any) -> str:
    if isinstance(error.__cause__, EabError):  # raised by a dataclass that checks itself
        return str(error.__cause__)
    words, _, place = str(error).replace("`", "").partition(" - at $")
    steps = _STEP_OF_PLACE.findall(place)
    words = words[0].lower() + words[1:]
    if "[...]" in place:  # one of the values of a dict; msgspec does not say which
        return f"{place.lstrip('.')}: {words}"
    expected = words.partition(", got ")[0]
    if expected.startswith("object contains unknown field "):
        return _unknown(expected.split()[-1])
    for name, index in steps:
        value = value[name or int(index)]
    if expected.startswith("invalid enum value"):
        declared = reduce(_inner, steps, kind)
        expected = f"expected one of: {', '.join(_choices(declared))}"
    got = f"a length of {len(value):,}" if "of length" in expected else quoted(value)
    return f"{place.lstrip('.')}: {expected}, got {got}".lstrip(": ")


def _inner(kind: Any, step: tuple[str, str]) -> Any:
    """The declared type of a field, by its name, or by its index in a NamedTuple or a tuple."""
    (name, index), parts = step, (kind, *get_args(kind))
    of_tuple = [get_args(part)[0] for part in parts if get_origin(part) is tuple]
    if of_tuple and not name:
        return of_tuple[0]
    owner = next(part for part in parts if hasattr(part, "__annotations__"))
    hints = get_type_hints(owner)
    return hints[name] if name else [*hints.values()][int(index)]


def _choices(kind: Any) -> list[str]:
    """The words that a type allows, as written in TOML and JSON."""
    if get_origin(kind) is Literal:
        return [json.dumps(word) for word in get_args(kind)]
    return [word for part in get_args(kind) for word in _choices(part)]


def _unknown(name: str) -> str:
    return f"{quoted(name)} is unknown here; remove it, or correct it"


def _check_names(given: Any, made: Any) -> None:
    """Refuse keys that are not fields of a dataclass, because msgspec ignores them."""
    if is_dataclass(made) and (unknown := given.keys() - _names(made.__class__)):
        raise NotDeclaredError(_unknown(min(unknown)))
    if not (is_dataclass(made) or isinstance(made, msgspec.Struct)):
        return
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
