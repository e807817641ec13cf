"""Saves active tasks, runs and sweeps, in files next to their store: a killed server loses a second
of work.

A task's file is deleted when the task ends, because the server then has the result in memory. Files
found when a server starts were left by one that was killed or ended; they are saved. Locks mark the
files of a live server, so several can share a folder; process ids are reused.
"""

import atexit
import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Final, Generic

from app.server.store import MAX_NAME, Kept, NamedStore, default_store, default_sweep_store, lock
from app.server.tasks import LiveTask
from eab import token_text
from eab.errors import EabError, RecordError
from eab.formatting import counted, shortened
from eab.labs.tuning.report import TuningReport, lines, load_lines
from eab.run import fold_prefix, record
from eab.run.events import Event
from eab.run.record.run_file import RunLines

_LOGGER: Final = logging.getLogger("eab")
EVERY: Final = 1.0  # seconds between writes


@dataclass(frozen=True)
class UnfinishedKind(Generic[Kept]):
    """How one kind of task is written while it is active, and how it is read again."""

    job_kind: str
    suffix: str  # of the file names
    has_begun: Callable[[LiveTask[Any]], bool]  # whether there is anything to keep yet
    # returns a function that returns what is new in a task since its last call, as bytes
    writer: Callable[[], Callable[[LiveTask[Any]], bytes]]
    # name and content of the result, from the bytes of a file; None if there is nothing to keep
    read: Callable[[bytes], tuple[str, Kept] | None]


class Unfinished(Generic[Kept]):
    """The files of active tasks, and those that other servers have left."""

    def __init__(self, store: NamedStore[Kept], kind: UnfinishedKind[Kept]) -> None:
        self._store, self._kind = store, kind
        self._folder = store.path.with_suffix(".unfinished")
        self._growing: dict[str, _File] = {}

    def write(self, tasks: Iterable[LiveTask[Any]]) -> None:
        """Write what is new in the active tasks of this kind; drop the files of ended ones."""
        active = {task.id: task for task in tasks if self._is_active(task)}
        for task_id in [*self._growing.keys() - active.keys()]:
            self._growing.pop(task_id).drop()
        for task_id, task in active.items():
            if task_id not in self._growing:
                self._growing[task_id] = self._new_file()
            self._growing[task_id].write(task)

    def _is_active(self, task: LiveTask[Any]) -> bool:
        return task.active and task.job.kind == self._kind.job_kind and self._kind.has_begun(task)

    def _new_file(self) -> "_File":
        with suppress(OSError):  # the file reports it, once
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _File(self._folder / f"{secrets.token_hex(8)}{self._kind.suffix}", self._kind)

    def recover(self) -> list[str]:
        """Save what other servers left; return the names. What cannot be saved now stays."""
        files = sorted(self._folder.glob(f"*{self._kind.suffix}"))
        return [name for file in files if (name := self._recovered(file))]

    def _recovered(self, file: Path) -> str:
        try:
            with file.open("r+b") as opened:
                lock(opened)
                kept = self._kind.read(opened.read())
                name = self._store.save(*kept).name if kept is not None else ""
                with suppress(OSError):  # some systems cannot delete an open file
                    file.unlink()
            file.unlink(missing_ok=True)
        except OSError:  # a live server writes it, or the folder cannot be changed
            return ""
        except EabError as error:
            _LOGGER.warning(
                "the unfinished %s %s is not saved: %s", self._kind.job_kind, file, error
            )
            return ""
        return name

    def leave(self) -> None:
        """Close the files and leave them to the next server."""
        for file in self._growing.values():
            file.close()
        self._growing.clear()


class _File:
    """The locked file of one active task. An error ends the file, because the task must go on."""

    def __init__(self, path: Path, kind: UnfinishedKind[Any]) -> None:
        self._path, self._kind, self._new_bytes = path, kind.job_kind, kind.writer()
        self._file: BinaryIO | None = None
        self._is_broken = False

    def write(self, task: LiveTask[Any]) -> None:
        if self._is_broken:
            return
        try:
            self._append(self._new_bytes(task))
        except (OSError, RecordError) as error:
            self._is_broken = True
            _LOGGER.warning("an unfinished %s is no longer saved: %s", self._kind, error)

    def _append(self, data: bytes) -> None:
        if self._file is None:
            self._file = self._path.open("x+b")
            lock(self._file)
        self._file.write(data)
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # the disk may be full
                self._file.close()

    def drop(self) -> None:
        """Delete the file, if possible while it is still locked."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        self.close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


class Keeper:
    """A thread that first saves what other servers left, then writes this server's tasks."""

    def __init__(
        self, tasks: Callable[[], Iterable[LiveTask[Any]]], kinds: Sequence[Unfinished[Any]]
    ) -> None:
        self._tasks, self._kinds = tasks, kinds
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="eab-keeper", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # before the worker stops its runs, so that they are left, too

    def _work(self) -> None:
        for kind in self._kinds:
            self._do(kind.recover)
        while not self._closed.wait(EVERY):
            self._write()

    def _write(self) -> None:
        for kind in self._kinds:
            self._do(partial(kind.write, self._tasks()))

    def _do(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:  # neither the tasks nor this thread may stop
            _LOGGER.warning("unfinished work is not kept: %s", type(error).__name__)

    def close(self) -> None:
        """Write once more, and leave the files to the next server."""
        if not self._closed.is_set():
            self._closed.set()
            self._thread.join(timeout=10)
            self._write()
            for kind in self._kinds:
                kind.leave()


_FASTEST: Final = 1  # gzip level; the files are short-lived


def of_this_server() -> list[Unfinished[Any]]:
    """The kinds that this server keeps; empty if saving is off."""
    runs, sweeps = default_store(), default_sweep_store()
    if runs is None or sweeps is None:
        return []
    return [Unfinished(runs, RUN), Unfinished(sweeps, SWEEP)]


def _run_writer() -> Callable[[LiveTask[Any]], bytes]:
    """The events of a run as the lines of its file."""
    packed, written = BytesIO(), 0
    lines = RunLines(packed, _FASTEST)

    def new_bytes(live: LiveTask[Any]) -> bytes:
        nonlocal written
        with live.lock:
            new = live.events[written:]
        written += len(new)
        for event in new:
            lines.add(event)
        lines.flush()
        data = packed.getvalue()
        packed.seek(0)
        packed.truncate()
        return data

    return new_bytes


def _run(data: bytes) -> tuple[str, Sequence[Event]] | None:
    events = record.loads(data, "it") if data else []
    run = fold_prefix(events).run
    if run is None or not run.steps:
        return None
    end = f" (breaks off after {counted(len(run.steps), 'step')})" if run.ended is None else ""
    prompt = " ".join(token_text.visible(run.started.prompt).split())
    prompt = "".join(character for character in prompt if character.isprintable())
    return shortened(prompt or "Run", MAX_NAME - len(end)) + end, events


def _sweep_writer() -> Callable[[LiveTask[TuningReport]], bytes]:
    """A line for each cell."""
    written = -1  # cells

    def new_bytes(live: LiveTask[TuningReport]) -> bytes:
        nonlocal written
        with live.lock:
            new, written = lines(live.state, written), len(live.state.cells)
        return new

    return new_bytes


def _sweep(data: bytes) -> tuple[str, TuningReport] | None:
    report = load_lines(data, "it") if data else TuningReport()
    if not report.cells:
        return None
    return f"Sweep (breaks off after {report.made})" if report.missing else "Sweep", report


RUN: Final = UnfinishedKind(
    job_kind="run",
    suffix=record.SUFFIX,
    has_begun=lambda live: live.state.run is not None and bool(live.state.run.steps),
    writer=_run_writer,
    read=_run,
)
SWEEP: Final = UnfinishedKind(
    job_kind="sweep",
    suffix=".sweep",
    has_begun=lambda live: bool(live.state.cells),
    writer=_sweep_writer,
    read=_sweep,
)
