"""What callers may pass as a list."""

from collections.abc import Mapping, Set
from typing import Any


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
