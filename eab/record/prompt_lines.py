"""Prompt files: JSON lines with one object each, or .txt files with one prompt per line.

Empty lines are numbered but skipped.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from eab.errors import ConfigError, EabError, RecordError
from eab.formatting import counted

STANDARD_STREAM: Final = "-"  # the name that stands for standard input or output
_SAFE_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_EXAMPLE: Final = '{"prompt": "Hello"}'
# A line: its number, and a function that parses it (ConfigError says what is wrong)
Line: TypeAlias = tuple[int, Callable[[], dict[str, Any]]]


class Named(Protocol):
    """An item made from a line."""

    @property
    def id(self) -> str:
        """An id that no other line has."""


Item = TypeVar("Item", bound=Named)


def read_text(name: str) -> str:
    """The text of a file; `-` is standard input. RecordError if it cannot be read."""
    try:
        return (
            sys.stdin.read()
            if name == STANDARD_STREAM
            else Path(name).read_text(encoding="utf-8-sig")  # some editors write a BOM
        )
    except OSError as error:
        raise RecordError(f"{name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{name} is not UTF-8 text ({error.reason}); save it as UTF-8") from error
    except ValueError as error:  # a null character in the name
        raise RecordError(f"{name!r} cannot be read: {error}") from error


def lines_of(name: str) -> Iterator[Line]:
    """The lines of a JSON lines or .txt file, numbered from 1; see `read_text`."""
    parse = _as_prompt if name.endswith(".txt") else _parsed_object
    lines = read_text(name).split("\n")  # not splitlines: JSON may hold other line separators
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, partial(parse, line)


def items_of(
    name: str, lines: Iterable[Line], make: Callable[[int, dict[str, Any]], Item]
) -> list[Item]:
    """Call `make` with the number and fields of each line; one ConfigError for all bad lines."""
    items: list[Item] = []
    numbers: dict[str, int] = {}
    problems: list[str] = []
    for number, parse in lines:
        try:
            item = make(number, parse())
            _check_new_id(item.id, number, numbers)
            items.append(item)
        except EabError as error:
            problems.append(f"line {number}: {error}")
    raise_if_wrong(name, problems)
    if not items:
        raise ConfigError(f"{_words_of(name)} has no prompts; write one per line")
    return items


def _as_prompt(line: str) -> dict[str, Any]:
    return {"prompt": line}


def _parsed_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"it is not JSON: {error.msg} at column {error.colno}. Write an object such as "
            f"{_EXAMPLE}, or name the file .txt for a prompt per line"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"it is not readable JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"it is {text!r:.40}; it must be an object such as {_EXAMPLE}")
    return value


def checked_id(given: Any) -> str:
    """The id of a line, as text; ConfigError if it cannot be part of a file name."""
    name = str(given) if isinstance(given, str | int) and not isinstance(given, bool) else ""
    if not _SAFE_ID.fullmatch(name):
        raise ConfigError(
            f"id is {given!r:.40}; it names the run file, so it must be at most 100 letters "
            "(a to z), digits, dots, _ and -, and begin with a letter, digit or _"
        )
    return name


def default_id(number: int) -> str:
    """The id of a line that gives none."""
    return f"{number:05d}"


def _check_new_id(id: str, number: int, numbers: dict[str, int]) -> None:
    other = numbers.setdefault(id.casefold(), number)  # some file systems ignore case
    if other != number:
        raise ConfigError(f"line {other} also has the id {id!r}; ids must differ by more than case")


def raise_if_wrong(name: str, problems: Sequence[str], done: str = "run") -> None:
    """Raise ConfigError with all problems of a file, if there are any, because of which nothing was
    `done`.
    """
    if problems:
        summary = (
            f"{_words_of(name)} has {counted(len(problems), 'problem')}, so nothing was {done}:"
        )
        raise ConfigError("\n  ".join([summary, *problems]))


def _words_of(name: str) -> str:
    return "standard input" if name == STANDARD_STREAM else name
