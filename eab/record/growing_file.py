"""Run files that are written while their run goes on: what a killed process had made can be opened.

`run.eab` is `run.part.eab` until the run has ended, so that an older file stays until then.
"""

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from eab.errors import RecordError
from eab.events import Event, Pause
from eab.record.run_file import LEVEL, RunLines, cannot_be_saved
from eab.record.whole_file import write_whole

PART: Final = ".part"  # what the name of an unfinished run ends in, before its suffix


def part_of(path: Path) -> Path:
    """The file of a run until it has ended."""
    return path.with_name(f"{path.stem}{PART}{path.suffix}")


def is_part(file: Path) -> bool:
    """Whether the file has the name of an unfinished run."""
    return file.stem.casefold().endswith(PART)  # as file systems that do not mind the case read it


class GrowingFile:
    """A file that a run is written into as it goes on, a whole step at a time.

    What goes wrong is kept in `problem`, as the run is worth more; the file then ends where it was.
    Two processes that write a file of this name do not write into one file: the later one's stands.

    Args:
        every: Seconds from one writing to the next, so that it costs little; 0 writes each step,
            and infinity only at `write` and `end`.
        guard: Called with the file before anything is in it, such as to lock it.
        level: That of gzip.
    """

    def __init__(
        self,
        path: Path,
        every: float = 0.0,
        guard: Callable[[BinaryIO], None] | None = None,
        level: int = LEVEL,
    ) -> None:
        self.problem: OSError | RecordError | None = None
        self._path, self._every, self._guard = path, every, guard
        self._packed = BytesIO()  # what is not on the disk yet
        self._lines = RunLines(self._packed, level)
        self._file: BinaryIO | None = None  # a run that does not begin leaves no file
        self._is_device = path.exists() and not path.is_file()  # or a pipe: it is written to once
        self._due = 0.0 if every < math.inf else every

    def add(self, event: Event) -> None:
        """Take one more event; after that of a step, it is time to write."""
        if self.problem is not None:
            return
        try:
            self._lines.add(event)
            if isinstance(event, Pause) and not self._is_device:
                self._write_if_due()
        except (OSError, RecordError) as error:
            self.problem = error

    def write(self) -> None:
        """Write what has come since the last time."""
        if self.problem is None:
            try:
                self._lines.flush()
                self._append()
            except OSError as error:
                self.problem = error

    def end(self) -> None:
        """Write what is left; the file stays open."""
        try:
            self._lines.close()
            if self.problem is None:
                self._append()
        except OSError as error:
            self.problem = error

    def abandon(self) -> None:
        """Leave the file as it is on the disk."""
        if self._file is not None:
            with suppress(OSError):  # what a full disk did not take
                self._file.close()

    def become(self, target: Path) -> None:
        """Close the file and put it in the place of another one; OSError if that fails."""
        assert self._file is not None
        is_own = self._is_device or _is_of(self._file, self._path)
        if not is_own:  # another process has begun anew, in a file of its own
            self._file.seek(0)
            write_whole(target, self._file.read())
        self._file.close()
        if is_own:
            os.replace(self._path, target)

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
        file = self._path.open("x+b")
        if self._guard is not None:
            self._guard(file)
        return file


class RunFile:
    """A run file that is written while the run goes on.

    What goes wrong is told at the end, as the run is worth more.

    Args:
        every: As in `GrowingFile`.
    """

    def __init__(self, path: Path | str, every: float = 0.0) -> None:
        self._path, self._target = path, Path(os.path.realpath(path))
        is_device = self._target.exists() and not self._target.is_file()
        self._growing = GrowingFile(self._target if is_device else part_of(self._target), every)
        self._added = 0  # events

    def add(self, event: Event) -> None:
        """Write one more event; after that of a step, all of them are on the disk, if it is due."""
        self._growing.add(event)
        self._added += 1

    def add_new(self, events: Sequence[Event]) -> None:
        """Write what is new among all events of the run so far."""
        for event in events[self._added :]:
            self.add(event)

    def close(self) -> None:
        """Put the file in its place; RecordError if anything could not be written."""
        self._growing.end()
        try:
            if self._growing.problem is not None:
                raise self._growing.problem
            self._growing.become(self._target)
        except OSError as error:
            raise cannot_be_saved(self._path, error) from error
        finally:
            self._growing.abandon()

    def abandon(self) -> None:
        """Leave what was written as an unfinished run."""
        self._growing.abandon()


def _is_of(file: BinaryIO, path: Path) -> bool:
    """Whether the open file is the one of this name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False
