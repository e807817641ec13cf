"""Which runs the server remembers, so that a reload finds its run again.

All active runs, and the newest of those that ended.
"""

import threading
from collections import OrderedDict
from typing import Any, Final

from app.server.job import State
from app.server.live_run import LiveTask

MAX_RUNS: Final = 100
# Of all ended runs together, as `live_run.size_of` counts; one takes about 0.7 KiB, including its
# share of the state.
MAX_SIZE: Final = 400_000


class RunRegistry:
    """Runs, sweeps and measurements by id. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, LiveTask[Any]] = OrderedDict()

    def add(self, run: LiveTask[Any]) -> None:
        """Remember a run; forget the oldest ended ones if there are too many."""
        with self._lock:
            ended = [known for known in self._runs.values() if not known.active]
            size = sum(known.size for known in ended)
            for known in ended:
                if len(self._runs) < MAX_RUNS and size <= MAX_SIZE:
                    break
                del self._runs[known.id]
                size -= known.size
            self._runs[run.id] = run

    def find(self, run_id: str, kind: type[State]) -> LiveTask[State] | None:
        """The run with this id and this type of state; None if it is unknown or forgotten."""
        with self._lock:
            run = self._runs.get(run_id)
        return run if run is not None and isinstance(run.state, kind) else None

    @property
    def runs(self) -> list[LiveTask[Any]]:
        """All of them, the oldest first."""
        with self._lock:
            return list(self._runs.values())

    def fail_begun(self, message: str) -> None:
        """End every queued or running job with this explanation."""
        for run in self.runs:
            if run.status != "loading":
                run.fail(message)

    def stop_all(self) -> None:
        """Stop every run."""
        with self._lock:
            for run in self._runs.values():
                run.stop()
