"""Estimates of what a run or sweep will take, from its settings and from earlier runs, and of how
long it waits in the queue.
"""

import heapq
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.server.live_run import LiveTask
from eab.config import SETTINGS, BranchingConfig
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.report import TuningReport
from eab.labs.tuning.sweeping import RESIMULATED, Item

_BESIDE_PASSES: Final = 1.2  # time of a sweep relative to its forward passes (measured)
_KEPT: Final = tuple(name for name in SETTINGS if name not in RESIMULATED)


def most_tokens(config: BranchingConfig) -> int:
    """The most tokens that a run can generate: one for every path at every step."""
    return config.max_paths * config.max_new_tokens


def seconds(
    config: BranchingConfig, model_name: str, earlier: Iterable[LiveTask[Any]]
) -> float | None:
    """How long a run takes if it takes all its steps, at the pace of this model's run with the
    nearest path limit, because a step takes longer with more paths. None if no run was timed.
    """
    timed: list[LiveTask[Any]] = [
        live
        for live in earlier
        if live.model_name == model_name
        and live.turns
        and live.job.kind == "run"  # a probe has one path, which is faster than a tree
    ]
    if not timed:
        return None
    nearest = min(
        reversed(timed), key=lambda live: abs(live.request.config.max_paths - config.max_paths)
    )
    pace: float = nearest.seconds / nearest.turns
    return config.max_new_tokens * pace


def timed_cells(model_name: str, earlier: Iterable[LiveTask[Any]]) -> list[Cell]:
    """The cells that this model ran in its newest sweep here; empty if there is none."""
    for live in reversed(list(earlier)):
        report = live.state
        if live.model_name == model_name and isinstance(report, TuningReport) and not live.active:
            # the first ones may come from a file
            cells = [cell for cell in report.cells[report.known :] if cell.made == "run"]
            if cells:
                return cells
    return []


def sweep_seconds(items: Sequence[Item], timed: Iterable[Cell]) -> float | None:
    """About how long a sweep takes: per item, its length limit times the time per token of timed
    cells with the nearest path limit, if possible of the same policy. None if none is timed.
    """
    spent: defaultdict[tuple[str, int], float] = defaultdict(float)
    done: defaultdict[tuple[str, int], set[Hashable]] = defaultdict(set)
    for cell in timed:
        config = cell.config
        place = config.policy, config.max_paths
        spent[place] += (cell.seconds or 0.0) / config.max_new_tokens
        done[place].add((cell.prompt_id, *(getattr(config, name) for name in _KEPT)))
    if not spent:
        return None
    paces = {place: spent[place] / len(done[place]) for place in spent}

    def pace(config: BranchingConfig) -> float:
        def off(place: tuple[str, int]) -> tuple[bool, int]:
            return place[0] != config.policy, abs(place[1] - config.max_paths)

        return paces[min(paces, key=off)] * config.max_new_tokens

    return _BESIDE_PASSES * sum(pace(item.configs[0]) for item in items)


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
