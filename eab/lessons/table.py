"""A table of TOML whose values are checked one by one; errors say where it stands."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from eab.errors import LessonError
from eab.formatting import quoted

_T = TypeVar("_T")


class Table:
    """The values of a table, taken one by one; what is left over at the end is refused.

    Args:
        values: The table.
        where: Where it stands in the file, for messages.

    Attributes:
        values: The table.
        where: Where it stands.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values, self.where = values, where
        self._taken: set[str] = set()

    def has(self, key: str) -> bool:
        """Whether this key was given."""
        return key in self.values

    def finish(self) -> None:
        """LessonError if a key was given that nobody asked for."""
        unknown = sorted(self.values.keys() - self._taken)
        if unknown:
            raise LessonError(
                f"{self.where}: {quoted(unknown[0])} is unknown here; remove it, or correct it"
            )

    def text(self, key: str, longest: int) -> str:
        """A text of one line."""
        value = self._take(key)
        if not isinstance(value, str) or not value.strip() or "\n" in value:
            raise self._refusal(key, value, "a text of one line, in quotes")
        if len(value) > longest:
            raise LessonError(
                f"{self.where}: {key} has {len(value):,} characters; it can have {longest}"
            )
        return value.strip()

    def choice(self, key: str, allowed: Sequence[str], default: str | None = None) -> str:
        """One of some words."""
        if default is not None and not self.has(key):
            return default
        value = self._take(key)
        if not isinstance(value, str) or value not in allowed:
            raise self._refusal(key, value, f"one of: {', '.join(allowed)}")
        return value

    def number(self, key: str, low: float, high: float) -> float:
        """A number from low to high."""
        return self._number(key, self._take(key), low, high)

    def whole(self, key: str, low: int, high: int) -> int:
        """A whole number from low to high."""
        value = self._take(key)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._refusal(key, value, f"a whole number from {low} to {high:,}")
        return value

    def truth(self, key: str) -> bool:
        """True or false."""
        value = self._take(key)
        if not isinstance(value, bool):
            raise self._refusal(key, value, "true or false")
        return value

    def numbers(self, key: str, count: range, low: float, high: float) -> tuple[float, ...]:
        """A list of numbers."""
        value = self._take(key)
        if not isinstance(value, list) or len(value) not in count:
            raise self._refusal(key, value, f"a list of {_between(count)} numbers")
        return tuple(self._number(key, one, low, high) for one in value)

    def tables(self, key: str, count: range) -> list["Table"]:
        """A list of tables."""
        value = self._take(key)
        if (
            not isinstance(value, list)
            or len(value) not in count
            or not all(isinstance(one, dict) for one in value)
        ):
            raise self._refusal(key, value, f"{_between(count)} tables [[{key}]]")
        return [Table(one, f"{self.where}, {key}") for one in value]

    def refused_in_words(self, find: Callable[[], _T]) -> _T:
        """What `find` returns; a LessonError of it says where."""
        try:
            return find()
        except LessonError as error:
            here = str(error).startswith(self.where)
            raise error if here else LessonError(f"{self.where}: {error}") from error

    def _take(self, key: str) -> Any:
        self._taken.add(key)
        if key not in self.values:
            raise LessonError(f"{self.where}: {key} is missing")
        return self.values[key]

    def _number(self, key: str, value: Any, low: float, high: float) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not low <= value <= high:
            raise self._refusal(key, value, f"a number from {low:g} to {high:g}")
        return float(value)

    def _refusal(self, key: str, value: object, allowed: str) -> LessonError:
        return LessonError(f"{self.where}: {key} is {quoted(value)}; it must be {allowed}")


def _between(count: range) -> str:
    return f"{count[0]} to {count[-1]}" if len(count) > 1 else f"{count[0]}"
