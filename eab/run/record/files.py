"""Files: written whole or as a table, growing run files, and prompt files with an item per line."""

import errno
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, TypeAlias, TypeVar

from eab.errors import ConfigError, EabError, RecordError
from eab.formatting import counted
from eab.run.events import Event, Pause
from eab.run.record.run_file import RunLines, dumps

if TYPE_CHECKING:
    import pandas as pd


def save(events: Iterable[Event], path: Path | str) -> None:
    """Write a run file, replacing an older one only at the end; RecordError if that fails."""
    save_whole(path, dumps(events))


def write_whole(path: Path | str, data: bytes) -> None:
    """Write a file, replacing an older one only at the end; OSError leaves the older file intact.

    A device or a pipe, such as /dev/stdout, is written to directly.
    """
    target = Path(os.path.realpath(path))  # replaces the target of a link, not the link
    if os.path.exists(target) and not os.path.isfile(target):
        target.write_bytes(data)
        return
    scratch = target.with_name(target.name + ".part")
    try:
        scratch.write_bytes(data)
        os.replace(scratch, target)
    except OSError:
        with suppress(OSError):  # this also fails on a read-only disk
            scratch.unlink(missing_ok=True)
        raise


def save_whole(path: Path | str, data: bytes) -> None:
    """Write a file as `write_whole` does; RecordError if that fails."""
    try:
        write_whole(path, data)
    except OSError as error:
        raise cannot_be_written(path, error) from error


def cannot_be_written(path: Path | str, error: OSError) -> RecordError:
    """The error to raise if a file could not be written."""
    full = "Free some space or choose" if error.errno == errno.ENOSPC else "Choose"
    return RecordError(f"{path} cannot be written: {error.strerror}. {full} another place")


def make_folder(path: Path) -> None:
    """Make a folder if needed; RecordError if nothing can be written into it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(
            f"the folder {path} cannot be created: {error.strerror}. Choose another one"
        ) from error
    if not os.access(path, os.W_OK):
        raise RecordError(f"the folder {path} is read-only. Choose another one")


def write_table(path: Path, table: "pd.DataFrame") -> None:
    """Write a table as Parquet, or raise RecordError."""
    try:
        data = table.to_parquet(index=False)
    except ImportError as error:  # pyarrow declares no numpy version, but refuses some on import
        raise RecordError(
            f"the table {path} cannot be written: pyarrow cannot be used. With numpy before 2, "
            'it must be older than 26: pip install "pyarrow<26"'
        ) from error
    save_whole(path, data)


class RunFile:
    """A run file that is written while the run continues, a whole step at a time.

    Until the run has ended, it is `NAME.part.eab`; an older file stays until then. Errors are
    raised only at the end, because losing the run would be worse.
    """

    def __init__(self, path: Path | str) -> None:
        self._path, self._target = path, Path(os.path.realpath(path))
        # or a pipe; written only once
        self._is_device = self._target.exists() and not self._target.is_file()
        self._part = self._target.with_name(f"{self._target.stem}.part{self._target.suffix}")
        self._packed = BytesIO()  # not on the disk yet
        self._lines = RunLines(self._packed)
        self._file: BinaryIO | None = None  # a run that never starts leaves no file
        self._problem: OSError | RecordError | None = None

    def add(self, event: Event) -> None:
        """Add an event; after one that ends a step, all are written to the disk."""
        if self._problem is None:
            with self._keeping_problems():
                self._lines.add(event)
                if isinstance(event, Pause) and not self._is_device:
                    self._lines.flush()
                    self._append()

    def close(self) -> None:
        """Move the file to its final path; RecordError if anything could not be written."""
        with self._keeping_problems():
            self._lines.close()
            if self._problem is None:
                self._append()
        self.abandon()
        try:
            if self._problem is not None:
                raise self._problem
            if not self._is_device:
                os.replace(self._part, self._target)
        except OSError as error:
            raise cannot_be_written(self._path, error) from error

    def abandon(self) -> None:
        """Leave the file on the disk as an unfinished run."""
        if self._file is not None:
            with suppress(OSError):  # the disk may be full
                self._file.close()

    @contextmanager
    def _keeping_problems(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RecordError) as error:
            self._problem = error

    def _append(self) -> None:
        if self._file is None:
            self._file = (self._target if self._is_device else self._part).open("wb")
        self._file.write(self._packed.getvalue())
        self._file.flush()
        self._packed.seek(0)
        self._packed.truncate()


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
