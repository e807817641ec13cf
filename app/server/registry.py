"""The runs that the server remembers, so that a reloaded page finds its run again.

It remembers all active runs, and the newest ended ones. The worker packs the events of ended runs
as a run file, a tenth of their memory or less, when it is idle or many are unpacked. Runs used
last, or held by a page, also stay in memory unpacked.
"""

import threading
import weakref
from collections import OrderedDict, deque
from typing import Any, Final

from app.server.live_run import LiveRun, LiveTask
from eab import record
from eab.engine.job import State
from eab.errors import RecordError
from eab.run import RunFold


class PackedRun:
    """The run file, and the run itself while a page holds it.

    Raises RecordError if the run does not fit into a file.
    """

    def __init__(self, live: LiveRun) -> None:
        self._file = record.dumps(live.events)
        self._whole = weakref.ref(live)
        self._unpacking = threading.Lock()  # so that two pages unpack it only once
        self.outline = live.without_events()

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return len(self._file)

    def run(self) -> LiveRun:
        """The run, with its events."""
        with self._unpacking:
            live = self._whole()
            if live is None:
                live = self.outline.without_events()
                live.events.extend(record.loads(self._file))
                for event in live.events:
                    live.state.apply(event)
                self._whole = weakref.ref(live)
            return live


MAX_RUNS: Final = 100
MAX_PACKED_BYTES: Final = 2**26
LAST_USED: Final = 2  # such as both runs of a comparison


class RunRegistry:
    """Runs, sweeps and measurements by id. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, LiveTask[Any] | PackedRun] = OrderedDict()
        self._last_used: deque[LiveTask[Any]] = deque(maxlen=LAST_USED)
        self._packing = threading.Lock()
        self._unpackable: set[str] = set()  # ids

    def add(self, run: LiveTask[Any]) -> None:
        """Remember a run; forget the oldest ended ones if there are too many."""
        with self._lock:
            self._forget_oldest()
            self._runs[run.id] = run
            self._last_used.append(run)

    def _forget_oldest(self) -> None:
        size = sum(run.size for run in self._runs.values() if isinstance(run, PackedRun))
        for run_id, run in list(self._runs.items()):
            if len(self._runs) < MAX_RUNS and size <= MAX_PACKED_BYTES:
                break
            if isinstance(run, PackedRun):
                size -= run.size
                del self._runs[run_id]
            elif not run.active:
                del self._runs[run_id]

    def find(self, run_id: str, kind: type[State]) -> LiveTask[State] | None:
        """The run with this id and this type of state; None if it is unknown or forgotten."""
        with self._lock:
            known = self._runs.get(run_id)
        run: LiveTask[Any] | None = known.run() if isinstance(known, PackedRun) else known
        if run is None or not isinstance(run.state, kind):
            return None
        with self._lock:
            if run in self._last_used:
                self._last_used.remove(run)
            self._last_used.append(run)
        return run

    def pack(self, except_newest: int = 0) -> bool:
        """Pack the ended runs; return whether there were any.

        64 paths of 256 tokens take a third of a second.
        """
        with self._packing:
            ended = [
                run
                for run in self.runs
                if not run.active and isinstance(run.state, RunFold) and run.state.run is not None
                if run.id not in self._unpackable
            ]
            oldest = ended[: max(0, len(ended) - except_newest)]
            for run in oldest:
                self._pack(run)
        return bool(oldest)

    def _pack(self, run: LiveTask[RunFold]) -> None:
        try:
            packed = PackedRun(run)
        except RecordError:
            self._unpackable.add(run.id)  # it stays unpacked
            return
        with self._lock:
            if self._runs.get(run.id) is run:  # it may have been forgotten meanwhile
                self._runs[run.id] = packed

    @property
    def runs(self) -> list[LiveTask[Any]]:
        """All runs, oldest first; packed ones have only their times and texts, no state."""
        with self._lock:
            known = list(self._runs.values())
        return [run.outline if isinstance(run, PackedRun) else run for run in known]

    def fail_started(self, message: str) -> None:
        """Fail every queued or running job with this explanation."""
        for run in self.runs:
            if run.status != "loading":
                run.fail(message)

    def stop_all(self) -> None:
        """Stop every run."""
        for run in self.runs:
            run.stop()
