"""Values from outside: those that can be given in several forms (lists, texts, JSON), and JSON or
TOML that is read into the dataclass or msgspec Struct that declares it.

What is read is not coerced: "3" is not 3, and True is not 1. The limits of numbers, texts and lists
are declared with the fields (msgspec.Meta). The length of a list is checked before its elements,
and reading stops at the first bad element, so a hostile file costs little.
"""

import json
import re
import threading
from collections.abc import Mapping, Set
from dataclasses import dataclass, fields, is_dataclass
from fnmatch import fnmatchcase
from functools import cache, reduce
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from eab.errors import ConfigError, EabError
from eab.formatting import quoted
from eab.settings import Text

Surrogates = Literal["strict", "surrogateescape"]

_T = TypeVar("_T")
_INSPECTING: Final = threading.Lock()
_STEP_OF_PLACE: Final = re.compile(r"\.(\w+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Texts:
    """A tuple of at most `most` texts, each of 1 to `longest` characters."""

    most: int
    longest: int

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, tuple) or len(value) > self.most:
            raise ConfigError(
                f"{name} is {quoted(value)}; it must be a list of at most {self.most} strings"
            )
        for text in value:
            Text(self.longest).check(f"a text of {name}", text)
            if not text:
                raise ConfigError(f"{name} has an empty string; leave it out")

    def __str__(self) -> str:
        return f"at most {self.most} texts of at most {self.longest} characters"


@dataclass(frozen=True, slots=True)
class JsonObject:
    """A JSON object as canonical text (see `as_json_text`), or the empty string."""

    longest: int  # characters of the text
    deepest: int  # how many lists and objects may be nested, itself included
    # Names that are not allowed; a trailing `*` matches any ending
    reserved: tuple[str, ...] = ()

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, str):
            raise ConfigError(
                f"{name} is {quoted(value)}; it must be a JSON object, as a dictionary or as text"
            )
        Text(self.longest).check(name, value)
        if value == "":
            return
        content = self._parsed(name, str(value))
        if not isinstance(content, dict):
            raise ConfigError(f"{name} is {quoted(value)}; it must be a JSON object")
        if _depth(content) > self.deepest:
            raise ConfigError(
                f"{name} has more than {self.deepest} nested lists and objects; flatten it"
            )
        for key in content:
            if any(fnmatchcase(key, pattern) for pattern in self.reserved):
                raise ConfigError(
                    f"{name} has the name {quoted(key)}, which is reserved; leave it out "
                    f"(reserved are: {', '.join(self.reserved)})"
                )

    def _parsed(self, name: str, text: str) -> Any:
        try:
            content = json.loads(text)
            as_json_text(content)
            return content
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                f"{name} is {quoted(text)}, which is not JSON with plain values ({error}); write "
                'an object such as {"enable_thinking": false}'
            ) from error

    def __str__(self) -> str:
        return f"a JSON object of at most {self.longest:,} characters"


def as_json_text(value: object) -> str:
    """JSON values as canonical text: equal values give the same text.

    Raises:
        ValueError: JSON cannot represent them, such as infinity.
        RecursionError: They are nested too deeply.
    """
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
    except TypeError as error:
        raise ValueError(str(error)) from error


def _depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, dict | list) + max(map(_depth, inner), default=0)


def as_texts(given: object) -> object:
    """A text or a list, as a tuple. Other values are left for `Texts.check` to refuse."""
    return (given,) if isinstance(given, str) else tuple(given) if type(given) is list else given


def as_object_text(given: object) -> object:
    """An object, given as such or as JSON, as canonical text; "" for an empty object. Other values
    are left for `JsonObject.check` to refuse.
    """
    try:
        value = json.loads(given) if isinstance(given, str) and given else given
        return given if not isinstance(value, dict) else as_json_text(value) if value else ""
    except (ValueError, RecursionError):
        return given


def as_plain_number(given: Any) -> Any:
    """A numpy or torch number as a Python number; other values unchanged."""
    return given.item() if getattr(given, "ndim", None) == 0 else given


def is_iterable(given: object) -> bool:
    """Whether it can be iterated over; a NumPy array without dimensions only seems to be."""
    try:
        iter(given)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def listed(given: Any) -> list[Any] | None:
    """The items of a list, Series, array, tensor or generator, without NumPy's types; None if it is
    none of these, such as a text, a mapping, a set (it has no order) or a DataFrame.
    """
    if isinstance(given, str | bytes | Mapping | Set) or hasattr(given, "columns"):
        return None
    if not is_iterable(given):
        return None
    return given.tolist() if hasattr(given, "tolist") else [*given]


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
