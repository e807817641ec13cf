"""Writing files: whole, so that a file is complete or absent; or a run file while the run goes on,
so that it can be opened if the run is killed. Also tables, and the folders for them.

`run.eab` is called `run.part.eab` until the run has ended, so an older `run.eab` stays until then.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from eab.errors import RecordError
from eab.events import Event, Pause
from eab.record.run_file import RunLines, dumps

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
    return RecordError(
        f"{path} cannot be written: {error.strerror}. Free some space or choose another place"
    )


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


# ---- run files that grow

PART: Final = ".part"  # ends the file name of an unfinished run, before the suffix


def part_of(path: Path) -> Path:
    """The path of the run file until the run has ended."""
    return path.with_name(f"{path.stem}{PART}{path.suffix}")


def is_part(file: Path) -> bool:
    """Whether the file has the name of an unfinished run."""
    return file.stem.casefold().endswith(PART)  # some file systems ignore case


class GrowingFile:
    """A file to which a run is written as it continues, a whole step at a time.

    An error is kept in `problem`, because losing the run would be worse; the file then ends there.
    Two processes that use the same path write separate files, and the path keeps the later one.

    Args:
        every: Seconds between writes, which limits their cost; 0 writes each step.
    """

    def __init__(self, path: Path, every: float = 0.0) -> None:
        self.problem: OSError | RecordError | None = None
        self._path, self._every = path, every
        self._packed = BytesIO()  # not on the disk yet
        self._lines = RunLines(self._packed)
        self._file: BinaryIO | None = None  # a run that never starts leaves no file
        self._is_device = path.exists() and not path.is_file()  # or a pipe; written only once
        self._due = 0.0

    def add(self, event: Event) -> None:
        """Add an event; one that ends a step triggers a write if it is due."""
        if self.problem is None:
            with self._keeping_problems():
                self._lines.add(event)
                if isinstance(event, Pause) and not self._is_device:
                    self._write_if_due()

    def end(self) -> None:
        """Write the remaining events; the file stays open."""
        with self._keeping_problems():
            self._lines.close()
            if self.problem is None:
                self._append()

    def abandon(self) -> None:
        """Close the file as it is on the disk."""
        if self._file is not None:
            with suppress(OSError):  # the disk may be full
                self._file.close()

    def move_to(self, target: Path) -> None:
        """Close the file and move it to `target`; OSError if that fails."""
        assert self._file is not None
        is_own = self._is_device or _is_of(self._file, self._path)
        if not is_own:  # another process has put its own file at this path
            self._file.seek(0)
            write_whole(target, self._file.read())
        self._file.close()
        if is_own:
            os.replace(self._path, target)

    @contextmanager
    def _keeping_problems(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RecordError) as error:
            self.problem = error

    def _write_if_due(self) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + self._every
            self._lines.flush()
            self._append()

    def _append(self) -> None:
        if self._file is None:
            self._file = self._new_file()
        self._file.write(self._packed.getvalue())
        self._file.flush()
        self._packed.seek(0)
        self._packed.truncate()

    def _new_file(self) -> BinaryIO:
        if self._is_device:
            return self._path.open("wb")
        self._path.unlink(missing_ok=True)
        return self._path.open("x+b")


class RunFile:
    """A run file that is written while the run continues.

    Errors are raised only at the end, because losing the run would be worse.

    Args:
        every: As in `GrowingFile`.
    """

    def __init__(self, path: Path | str, every: float = 0.0) -> None:
        self._path, self._target = path, Path(os.path.realpath(path))
        is_device = self._target.exists() and not self._target.is_file()
        self._growing = GrowingFile(self._target if is_device else part_of(self._target), every)
        self._added = 0  # number of events added

    def add(self, event: Event) -> None:
        """Add an event; after one that ends a step, all are written to the disk if that is due."""
        self._growing.add(event)
        self._added += 1

    def add_new(self, events: Sequence[Event]) -> None:
        """Add those of the run's events so far that are new."""
        for event in events[self._added :]:
            self.add(event)

    def close(self) -> None:
        """Move the file to its final path; RecordError if anything could not be written."""
        self._growing.end()
        try:
            if self._growing.problem is not None:
                raise self._growing.problem
            self._growing.move_to(self._target)
        except OSError as error:
            raise cannot_be_written(self._path, error) from error
        finally:
            self._growing.abandon()

    def abandon(self) -> None:
        """Leave the file on the disk as an unfinished run."""
        self._growing.abandon()


def _is_of(file: BinaryIO, path: Path) -> bool:
    """Whether the open file is the one at this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False
