"""The run queue: in which order runs start, and how long they wait.

It is not thread-safe; the worker guards it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.server.live_run import LiveTask


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """The position of a waiting run.

    Attributes:
        number: 1 starts next.
        total: How many runs wait.
        seconds: Estimated time until it starts, if no run before it ends early; None if nothing
            was measured yet.
    """

    number: int
    total: int
    seconds: float | None


class RunQueue:
    """Waiting runs, in rounds, so that frequent requesters do not delay others.

    A new run joins the first round after that of its owner's last run. Within a round, runs start
    in the order of their arrival (start-time fair queueing; Goyal, Vin and Cheng 1996).
    """

    def __init__(self) -> None:
        # Pairs of round and run, the next to start first.
        self._waiting: list[tuple[int, LiveTask[Any]]] = []
        self._round = 0  # of the run that started last
        self._last_rounds: dict[str, int] = {}  # owner -> round of its run that started last

    @property
    def runs(self) -> list[LiveTask[Any]]:
        """The waiting runs, the next to start first."""
        return [run for _, run in self._waiting]

    def add(self, run: LiveTask[Any]) -> None:
        """Queue a run. Runs of its owner that left the queue before they started do not count."""
        waiting = [number for number, other in self._waiting if other.owner == run.owner]
        after_last = self._last_rounds.get(run.owner, -1) + 1
        number = max([self._round, after_last, *(one + 1 for one in waiting)])
        self._waiting.append((number, run))
        self._waiting.sort(key=lambda entry: entry[0])  # stable: arrival order within a round

    def pop(self) -> LiveTask[Any]:
        """Remove and return the run that starts next."""
        self._round, run = self._waiting.pop(0)
        self._last_rounds = {
            owner: number for owner, number in self._last_rounds.items() if number >= self._round
        }
        self._last_rounds[run.owner] = self._round
        return run

    def remove_ended(self) -> None:
        """Remove the runs that were stopped while they waited, or that nobody watches any more."""
        for _, run in self._waiting:
            if run.should_stop:
                run.end_if_not_started()
        self._waiting = [entry for entry in self._waiting if entry[1].active]

    def position(
        self, run: LiveTask[Any], running: Sequence[LiveTask[Any]], max_running: int
    ) -> QueuePosition | None:
        """The position of a run; None if it does not wait.

        Args:
            run: The run.
            running: The runs that take turns now.
            max_running: How many runs may take turns at the same time.
        """
        runs = self.runs
        if run not in runs:
            return None
        number = runs.index(run) + 1
        seconds = seconds_until_start(runs[:number], running, max_running)
        return QueuePosition(number, len(runs), seconds)


def seconds_until_start(
    waiting: Sequence[LiveTask[Any]], running: Sequence[LiveTask[Any]], max_running: int
) -> float | None:
    """Estimate when the last of the waiting runs has its first turn.

    Every run is assumed to take all its turns, at its mean pace so far; a run without a turn yet
    counts with the mean pace of the others.

    Args:
        waiting: The runs that start before it, in their order, and the run itself.
        running: The runs that take turns now.
        max_running: How many runs may take turns at the same time.

    Returns:
        Seconds; None if nothing was measured yet.
    """
    turns = sum(run.turns for run in running)
    if turns == 0:
        return None
    mean = sum(run.seconds for run in running) / turns
    active = [
        (max(1, run.max_turns - run.turns), run.seconds / run.turns if run.turns else mean)
        for run in running
    ]
    seconds = 0.0
    for run in waiting:
        while len(active) >= max_running:
            rounds = min(left for left, _ in active)
            seconds += rounds * sum(pace for _, pace in active)
            active = [(left - rounds, pace) for left, pace in active if left > rounds]
        active.append((run.max_turns, mean))
    return seconds
