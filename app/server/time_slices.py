"""Time slices for sweeps and measurements. These measure their own time, so nothing else may share
their forward passes. `serve` may run without the worker's lock; everything else needs it.
"""

from collections.abc import Iterator
from typing import Any, Final

from app.server.live_run import LiveTask, explain
from app.server.queue import QueuePosition, position_in
from eab.engine.fair_queue import FairQueue

MAX_TAKING_TURNS: Final = 8  # more tasks wait


class TimeSlices:
    """Tasks that take turns; a turn lasts until the next Pause."""

    def __init__(self) -> None:
        self._queue: FairQueue[LiveTask[Any]] = FairQueue()
        self._running: list[LiveTask[Any]] = []
        self._events: dict[str, Iterator[Any]] = {}  # by id of the queued or running task

    @property
    def active(self) -> int:
        """The number of tasks that wait or take turns."""
        return len(self._running) + len(self._queue.entries)

    def add(self, task: LiveTask[Any], events: Iterator[Any]) -> None:
        """Queue a task, unless it has been stopped in the meantime."""
        if task.advance_to("waiting"):
            self._queue.add(task)
            self._events[task.id] = events

    def position(self, task: LiveTask[Any]) -> QueuePosition | None:
        """The position of a task in the queue; None if it is not waiting."""
        waiting = self._queue.entries
        if task not in waiting:
            return None
        return position_in(waiting, task, self._running, MAX_TAKING_TURNS)

    def tidy(self) -> None:
        """Drop ended tasks, and start waiting ones in their place."""
        self._running = [task for task in self._running if task.active]
        for task in self._queue.entries:
            if task.should_stop:
                task.end_if_not_started()
            if not task.active:
                self._queue.remove(task)
        while self._queue.entries and len(self._running) < MAX_TAKING_TURNS:
            task = self._queue.pop()
            if task.advance_to("running"):
                self._running.append(task)
        known = {task.id for task in (*self._running, *self._queue.entries)}
        self._events = {key: events for key, events in self._events.items() if key in known}

    def serve(self) -> None:
        """Give each task one turn; an exception ends only that task."""
        for task in list(self._running):
            try:
                if not task.run_turn(self._events[task.id]) and task.active:
                    task.fail("the run ended unexpectedly; try again")
            except Exception as error:
                task.fail(explain(error))
