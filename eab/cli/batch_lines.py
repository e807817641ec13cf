"""The lines of a file of prompts: each is a run, with an id, a prompt and settings.

JSON lines hold an object each: `prompt`, optionally `id`, and any settings by their names in
Python. A file whose name ends in .txt holds a prompt per line. Empty lines count, but are no runs.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from eab.cli.files import STANDARD_STREAM
from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.errors import ConfigError, EabError, RecordError
from eab.formatting import counted

_SAFE_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_EXAMPLE: Final = '{"prompt": "Hello"}'


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One run of a batch.

    Attributes:
        number: The number of its line, from 1.
        id: Names its run file.
        request: Prompt and settings.
    """

    number: int
    id: str
    request: Request

    def __str__(self) -> str:
        return f"line {self.number} ({self.id})"


def read_lines(name: str, defaults: BranchingConfig) -> list[BatchLine]:
    """The runs that a file asks for.

    Args:
        name: The file; `-` for JSON lines from standard input.
        defaults: The settings of lines that do not set them.

    Raises:
        RecordError: The file cannot be read.
        ConfigError: Lines are wrong, or there are none; the message has the reason for each.
    """
    lines: dict[str, BatchLine] = {}  # by what names the run file where case does not count
    problems: list[str] = []
    for number, text in _numbered(name):
        try:
            line = _line(number, text, defaults, is_json=not name.endswith(".txt"))
            other = lines.setdefault(line.id.casefold(), line)
            if other is not line:
                raise ConfigError(
                    f"the id {line.id!r} is that of line {other.number}, too; ids must differ, and "
                    "not by case alone"
                )
        except EabError as error:
            problems.append(f"line {number}: {error}")
    raise_if_wrong(name, problems)
    if not lines:
        raise ConfigError(f"{_words(name)} has no prompts; write one per line")
    return list(lines.values())


def raise_if_wrong(name: str, problems: Sequence[str]) -> None:
    """Say which lines of a file are wrong, if there are any.

    Raises:
        ConfigError: There are.
    """
    if problems:
        found = f"{_words(name)} has {counted(len(problems), 'problem')}, so nothing was run:"
        raise ConfigError("\n  ".join([found, *problems]))


def _numbered(name: str) -> Iterator[tuple[int, str]]:
    try:
        text = (
            sys.stdin.read()
            if name == STANDARD_STREAM
            else Path(name).read_text(encoding="utf-8-sig")  # some editors begin with a mark
        )
    except OSError as error:
        raise RecordError(f"{name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{name} is no UTF-8 text ({error.reason}); save it as UTF-8") from error
    lines = text.split("\n")  # not splitlines: JSON may hold other line separators
    return ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def _line(number: int, text: str, defaults: BranchingConfig, *, is_json: bool) -> BatchLine:
    default_id = f"{number:05d}"
    if not is_json:
        return BatchLine(number, default_id, Request(text, defaults))
    value = _parsed(text)
    own_id, prompt = value.pop("id", default_id), value.pop("prompt", None)
    if not isinstance(prompt, str):
        raise ConfigError(f"prompt is {prompt!r:.40}; every line needs a prompt, as text")
    config = BranchingConfig.from_settings(asdict(defaults) | value)
    return BatchLine(number, _checked_id(own_id), Request(prompt, config))


def _parsed(text: str) -> dict[str, Any]:
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


def _checked_id(given: Any) -> str:
    name = str(given) if isinstance(given, str | int) and not isinstance(given, bool) else ""
    if not _SAFE_ID.fullmatch(name):
        raise ConfigError(
            f"id is {given!r:.40}; it names the run file, so it must be at most 100 letters "
            "(a to z), digits, dots, _ and -, and begin with a letter, digit or _"
        )
    return name


def _words(name: str) -> str:
    return "standard input" if name == STANDARD_STREAM else name
