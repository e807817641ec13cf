"""Who waits, in which order they begin, and about how long that takes. No threads: the worker
guards it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.server.live_run import Live


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """The place of a waiting run: `place` 1 of `of` begins next. seconds: about, if nobody before
    it ends early.
    """

    place: int
    of: int
    seconds: float | None


class RunQueue:
    """Runs wait in rounds: an owner's next run joins the round after that of its last one, so who
    asks often pushes nobody else back. Within a round, who came first begins first (start-time fair
    queueing; Goyal, Vin and Cheng 1996).
    """

    def __init__(self) -> None:
        self._waiting: list[
            tuple[int, Live[Any]]
        ] = []  # with their rounds, in the order in which they begin
        self._now = 0  # the round of the run that began last
        self._begun: dict[str, int] = {}  # owner -> the round of the run that began last

    @property
    def runs(self) -> list[Live[Any]]:
        """Those that wait, the next to begin first."""
        return [run for _, run in self._waiting]

    def join(self, run: Live[Any]) -> None:
        """Take a place. Runs of the same owner that left the line without beginning do not
        count.
        """
        waiting = [number for number, other in self._waiting if other.owner == run.owner]
        number = max([self._now, self._begun.get(run.owner, -1) + 1, *(one + 1 for one in waiting)])
        self._waiting.append((number, run))
        self._waiting.sort(key=lambda entry: entry[0])  # stable: within a round, as they came

    def first(self) -> Live[Any]:
        """Take the next to begin out of the line."""
        self._now, run = self._waiting.pop(0)
        self._begun = {
            owner: number for owner, number in self._begun.items() if number >= self._now
        }
        self._begun[run.owner] = self._now
        return run

    def drop_ended(self) -> None:
        """Let those leave that were stopped while they waited, or that nobody watches any more."""
        for _, run in self._waiting:
            if run.stopping:
                run.end_if_not_begun()
        self._waiting = [entry for entry in self._waiting if entry[1].active]

    def position(
        self, run: Live[Any], running: Sequence[Live[Any]], at_once: int
    ) -> QueuePosition | None:
        """Where the run stands; None if it does not wait."""
        runs = self.runs
        if run not in runs:
            return None
        place = runs.index(run)
        return QueuePosition(
            place + 1, len(runs), seconds_until_begin(runs[: place + 1], running, at_once)
        )


def seconds_until_begin(
    waiting: Sequence[Live[Any]], running: Sequence[Live[Any]], at_once: int
) -> float | None:
    """When the last of these takes its first turn, if all take turns of the length measured so far,
    and take them all.

    A run without a turn yet counts with the mean of the others. None: nothing was measured yet.
    """
    turns = sum(run.turns for run in running)
    if turns == 0:
        return None
    mean = sum(run.seconds for run in running) / turns
    active = [
        (max(1, run.longest - run.turns), run.seconds / run.turns if run.turns else mean)
        for run in running
    ]
    seconds = 0.0
    for run in waiting:
        while len(active) >= at_once:
            rounds = min(left for left, _ in active)
            seconds += rounds * sum(pace for _, pace in active)
            active = [(left - rounds, pace) for left, pace in active if left > rounds]
        active.append((run.longest, mean))
    return seconds
