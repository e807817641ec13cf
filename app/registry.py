"""Which runs are remembered, so that a reload finds its run again: all live ones, the newest of those that ended."""

import threading
from collections import OrderedDict
from typing import Any, Final

from app.live import Live, LiveComparison, LiveRun
from eab.comparison import Comparison
from eab.run import Run

KEPT_RUNS: Final = 100
KEPT_EVENTS: Final = 400_000  # of all ended runs together; an event with its share of the state takes about 1 KiB


class Registry:
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

    def find_run(self, run_id: str) -> LiveRun | None:
        """The run of this id, unless it is forgotten."""
        run = self._find(run_id)
        return run if run is not None and isinstance(run.state, Run) else None

    def find_comparison(self, run_id: str) -> LiveComparison | None:
        """The comparison of this id, unless it is forgotten."""
        run = self._find(run_id)
        return run if run is not None and isinstance(run.state, Comparison) else None

    def stop_all(self) -> None:
        """Stop every run."""
        with self._books:
            for run in self._runs.values():
                run.stop()

    def _find(self, run_id: str) -> Live[Any] | None:
        with self._books:
            return self._runs.get(run_id)
