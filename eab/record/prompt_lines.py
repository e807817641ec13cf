"""Files of prompts, line by line: what all of them share, and what is wrong with them, in words."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from eab.errors import ConfigError, RecordError
from eab.formatting import counted

STANDARD_STREAM: Final = "-"  # the name that stands for standard input or output
_SAFE_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_EXAMPLE: Final = '{"prompt": "Hello"}'


def read_text(name: str) -> str:
    """The text of a file; `-` is standard input.

    Raises:
        RecordError: It cannot be read.
    """
    try:
        return (
            sys.stdin.read()
            if name == STANDARD_STREAM
            else Path(name).read_text(encoding="utf-8-sig")  # some editors begin with a mark
        )
    except OSError as error:
        raise RecordError(f"{name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{name} is no UTF-8 text ({error.reason}); save it as UTF-8") from error


def numbered_lines(name: str) -> list[tuple[int, str]]:
    """The lines that are not empty, with their numbers from 1; see `read_text`."""
    lines = read_text(name).split("\n")  # not splitlines: JSON may hold other line separators
    return [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def parsed_object(text: str) -> dict[str, Any]:
    """The JSON object of a line.

    Raises:
        ConfigError: It is none.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"it is not JSON: {error.msg} at column {error.colno}. Write an object such as "
            f"{_EXAMPLE}, or name the file .txt for a prompt per line"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"it is not JSON that can be read: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"it is {text!r:.40}; it must be an object such as {_EXAMPLE}")
    return value


def checked_id(given: Any) -> str:
    """The id of a line, as a text.

    Raises:
        ConfigError: It is none that could name a file.
    """
    name = str(given) if isinstance(given, str | int) and not isinstance(given, bool) else ""
    if not _SAFE_ID.fullmatch(name):
        raise ConfigError(
            f"id is {given!r:.40}; it names the run file, so it must be at most 100 letters "
            "(a to z), digits, dots, _ and -, and begin with a letter, digit or _"
        )
    return name


def default_id(number: int) -> str:
    """The id of a line without one."""
    return f"{number:05d}"


def check_new_id(id: str, number: int, numbers: dict[str, int]) -> None:
    """Note the id of a line.

    Args:
        id: The id.
        number: The number of its line.
        numbers: The line of each id so far.

    Raises:
        ConfigError: Another line has it.
    """
    other = numbers.setdefault(id.casefold(), number)  # names of files may not differ by case alone
    if other != number:
        raise ConfigError(
            f"the id {id!r} is that of line {other}, too; ids must differ, and not by case alone"
        )


def raise_if_wrong(name: str, problems: Sequence[str]) -> None:
    """Say which lines of a file are wrong, if there are any.

    Raises:
        ConfigError: There are.
    """
    if problems:
        found = f"{words_of(name)} has {counted(len(problems), 'problem')}, so nothing was run:"
        raise ConfigError("\n  ".join([found, *problems]))


def words_of(name: str) -> str:
    """How messages name the file."""
    return "standard input" if name == STANDARD_STREAM else name
