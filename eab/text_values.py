"""Values that can be given in several forms: lists, texts, JSON."""

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from eab.errors import ConfigError
from eab.formatting import quoted
from eab.settings import Text


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
