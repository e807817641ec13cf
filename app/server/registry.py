"""Which runs are remembered, so that a reload finds its run again: all live ones, the newest of
those that ended.
"""

import threading
from collections import OrderedDict
from typing import Any, Final

from app.server.live_run import Live, State

KEPT_RUNS: Final = 100
KEPT_EVENTS: Final = (
    400_000  # of all ended runs together; an event with its share of the state takes about 1 KiB
)


class RunRegistry:
    """Runs by id. Safe to use from several threads."""

    def __init__(self) -> None:
        self._books = threading.Lock()
        self._runs: OrderedDict[str, Live[Any]] = OrderedDict()

    def add(self, run: Live[Any]) -> None:
        """Remember it, and forget the oldest ended ones where there are too many."""
        with self._books:
            ended = [known for known in self._runs.values() if not known.active]
            events = sum(len(known.events) for known in ended)
            for known in ended:
                if len(self._runs) < KEPT_RUNS and events <= KEPT_EVENTS:
                    break
                del self._runs[known.id]
                events -= len(known.events)
            self._runs[run.id] = run

    def find(self, run_id: str, kind: type[State]) -> Live[State] | None:
        """The run (or comparison, or report: whatever `kind` says) of this id, unless it is
        forgotten.
        """
        with self._books:
            run = self._runs.get(run_id)
        return run if run is not None and isinstance(run.state, kind) else None

    def stop_all(self) -> None:
        """Stop every run."""
        with self._books:
            for run in self._runs.values():
                run.stop()
