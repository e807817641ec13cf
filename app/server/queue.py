"""Estimated waiting times in the queue."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.server.live_run import LiveTask


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """The position of a waiting run."""

    number: int  # 1 starts next
    total: int  # number of waiting runs
    # estimated time until it starts, if no run before it ends early; None before the first
    # measurement
    seconds: float | None


def position_in(
    waiting: Sequence[LiveTask[Any]],
    run: LiveTask[Any],
    running: Sequence[LiveTask[Any]],
    max_running: int,
) -> QueuePosition:
    """The position of a waiting run."""
    number = waiting.index(run) + 1
    seconds = seconds_until_start(waiting[:number], running, max_running)
    return QueuePosition(number, len(waiting), seconds)


def seconds_until_start(
    waiting: Sequence[LiveTask[Any]], running: Sequence[LiveTask[Any]], max_running: int
) -> float | None:
    """Estimate the seconds until the last of the waiting runs has its first turn.

    `waiting` is in starting order. Every run is assumed to take all its turns at its mean pace so
    far, which includes the turns of other runs; a run without a turn yet counts with the mean pace
    of all. None if nothing was measured yet.
    """
    turns = sum(run.turns for run in running)
    if turns == 0:
        return None
    mean = sum(run.seconds for run in running) / turns
    ends = [
        max(1, run.job.max_turns - run.turns) * (run.seconds / run.turns if run.turns else mean)
        for run in running
    ]
    heapq.heapify(ends)
    start = 0.0
    for run in waiting:
        if len(ends) >= max_running:
            start = heapq.heappop(ends)
        heapq.heappush(ends, start + run.job.max_turns * mean)
    return start
