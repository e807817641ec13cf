"""Runs that are being made, in files beside the saved runs: a killed server loses a second of them.

A file goes when its run has ended, which is in the memory of the server then. What is there when a
server starts was left by one that was killed or ended: it becomes a saved run. The file of a server
that lives is locked, so several may use one folder; a process number would be used again.
"""

import atexit
import logging
import math
import secrets
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from app.server.file_lock import lock
from app.server.live_run import LiveRun, LiveTask
from app.server.named_store import MAX_NAME
from app.server.store import RunStore
from eab import record, token_text
from eab.errors import EabError
from eab.formatting import counted, shortened
from eab.record.growing_file import GrowingFile
from eab.run import RunState, fold_prefix

_LOGGER: Final = logging.getLogger("eab")
EVERY: Final = 1.0  # seconds from one writing to the next
_FASTEST: Final = 1  # of the levels of gzip: the files are short-lived


class Unfinished:
    """The files of the runs that are being made, and of those that others have left."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._folder = store.path.with_suffix(".unfinished")
        self._growing: dict[str, _Growing] = {}

    def write(self, runs: Iterable[LiveTask[Any]]) -> None:
        """Write what is new of the active runs; drop the files of the others."""
        active = {run.id: run for run in runs if run.active and run.job.kind == "run"}
        for run_id in [*self._growing.keys() - active.keys()]:
            self._growing.pop(run_id).drop()
        for run_id, run in active.items():
            if run_id in self._growing or self._begins(run):
                self._growing[run_id].write(run)

    def _begins(self, run: LiveRun) -> bool:
        """Give a run that has a step now a file."""
        if run.state.run is None or not run.state.run.steps:
            return False
        with suppress(OSError):  # the file will say so, once
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"{secrets.token_hex(8)}{record.SUFFIX}"
        self._growing[run.id] = _Growing(self._folder / name)
        return True

    def adopt(self) -> list[str]:
        """Save what others have left; returns the names. What cannot be saved now stays."""
        files = sorted(self._folder.glob(f"*{record.SUFFIX}"))
        return [name for file in files if (name := self._adopted(file))]

    def _adopted(self, file: Path) -> str:
        try:
            with file.open("r+b") as opened:
                lock(opened)
                name = self._saved(opened.read())
                with suppress(OSError):  # where open files cannot be deleted
                    file.unlink()
            file.unlink(missing_ok=True)
        except OSError:  # the server that writes it lives, or the folder cannot be changed
            return ""
        except EabError as error:
            _LOGGER.warning("the unfinished run %s is not saved: %s", file, error)
            return ""
        return name

    def _saved(self, data: bytes) -> str:
        """The name under which this file is a saved run now; empty if it has no step."""
        events = record.loads(data, "it") if data else []
        run = fold_prefix(events).run
        if run is None or not run.steps:
            return ""
        return self._store.save(_name(run), events).name

    def leave(self) -> None:
        """Close the files and leave them to the next server."""
        for growing in self._growing.values():
            growing.file.abandon()
        self._growing.clear()


class _Growing:
    def __init__(self, path: Path) -> None:
        self.file = GrowingFile(path, math.inf, lock, _FASTEST)
        self._path, self._written, self._has_warned = path, 0, False

    def write(self, run: LiveRun) -> None:
        with run.lock:
            new = run.events[self._written :]
        self._written += len(new)
        for event in new:
            self.file.add(event)
        self.file.write()
        if self.file.problem is not None and not self._has_warned:
            self._has_warned = True
            _LOGGER.warning("an unfinished run is not kept any longer: %s", self.file.problem)

    def drop(self) -> None:
        """Delete the file, while it is still locked if that is possible."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        self.file.abandon()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def _name(run: RunState) -> str:
    end = f" (breaks off after {counted(len(run.steps), 'step')})" if run.ended is None else ""
    prompt = " ".join(token_text.visible(run.started.prompt).split())
    prompt = "".join(character for character in prompt if character.isprintable())
    return shortened(prompt or "Run", MAX_NAME - len(end)) + end


class Keeper:
    """A thread that saves what others have left, and then writes the runs of a server."""

    def __init__(self, runs: Callable[[], Iterable[LiveTask[Any]]], store: RunStore) -> None:
        self._runs, self._unfinished = runs, Unfinished(store)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="eab-keeper", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # before the worker stops its runs: they are left, too

    def _work(self) -> None:
        self._do(self._unfinished.adopt)
        while not self._closed.wait(EVERY):
            self._do(self._write)

    def _write(self) -> None:
        self._unfinished.write(self._runs())

    def _do(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:  # the runs go on, and so does the thread
            _LOGGER.warning("unfinished runs are not kept: %s", type(error).__name__)

    def close(self) -> None:
        """Write once more, and leave the files to the next server."""
        if not self._closed.is_set():
            self._closed.set()
            self._thread.join(timeout=10)
            self._do(self._write)
            self._unfinished.leave()
