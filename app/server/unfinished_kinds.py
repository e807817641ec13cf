"""The kinds of tasks that are kept while they are active: runs and sweeps."""

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from app.server.file_lock import lock
from app.server.live_run import LiveTask
from app.server.named_store import MAX_NAME
from app.server.store import default_store
from app.server.sweep_store import default_sweep_store
from app.server.unfinished import Unfinished, UnfinishedKind
from eab import record, token_text
from eab.events import Event
from eab.formatting import counted, shortened
from eab.labs.tuning import report as sweep_files
from eab.labs.tuning.report import TuningReport
from eab.record.growing_file import GrowingFile
from eab.run import fold_prefix

_FASTEST: Final = 1  # gzip level; the files are short-lived


def of_this_server() -> list[Unfinished[Any]]:
    """The kinds that this server keeps; empty if saving is off."""
    runs, sweeps = default_store(), default_sweep_store()
    if runs is None or sweeps is None:
        return []
    return [Unfinished(runs, RUN), Unfinished(sweeps, SWEEP)]


class _GrowingRun:
    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path, math.inf, lock, _FASTEST)
        self._written = 0  # events

    @property
    def problem(self) -> Exception | None:
        return self._file.problem

    def write(self, live: LiveTask[Any]) -> None:
        with live.lock:
            new = live.events[self._written :]
        self._written += len(new)
        for event in new:
            self._file.add(event)
        self._file.write()

    def abandon(self) -> None:
        self._file.abandon()


def _run(data: bytes) -> tuple[str, Sequence[Event]] | None:
    events = record.loads(data, "it") if data else []
    run = fold_prefix(events).run
    if run is None or not run.steps:
        return None
    end = f" (breaks off after {counted(len(run.steps), 'step')})" if run.ended is None else ""
    prompt = " ".join(token_text.visible(run.started.prompt).split())
    prompt = "".join(character for character in prompt if character.isprintable())
    return shortened(prompt or "Run", MAX_NAME - len(end)) + end, events


class _GrowingSweep:
    """A file with a line for each cell."""

    def __init__(self, path: Path) -> None:
        self.problem: Exception | None = None
        self._path = path
        self._file: BinaryIO | None = None
        self._written = -1  # cells

    def write(self, live: LiveTask[TuningReport]) -> None:
        if self.problem is not None:
            return
        try:
            if self._file is None:
                self._file = self._path.open("x+b")
                lock(self._file)
            with live.lock:
                new, made = sweep_files.lines(live.state, self._written), len(live.state.cells)
            self._file.write(new)
            self._file.flush()
            self._written = made
        except OSError as error:
            self.problem = error

    def abandon(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # the disk may be full
                self._file.close()


def _sweep(data: bytes) -> tuple[str, TuningReport] | None:
    report = sweep_files.load_lines(data, "it") if data else TuningReport()
    if not report.cells:
        return None
    return f"Sweep (breaks off after {report.made})" if report.missing else "Sweep", report


RUN: Final = UnfinishedKind(
    job_kind="run",
    suffix=record.SUFFIX,
    has_begun=lambda live: live.state.run is not None and bool(live.state.run.steps),
    new_file=_GrowingRun,
    read=_run,
)
SWEEP: Final = UnfinishedKind(
    job_kind="sweep",
    suffix=".sweep",
    has_begun=lambda live: bool(live.state.cells),
    new_file=_GrowingSweep,
    read=_sweep,
)
