"""Which runs may start under the server's rules, and how long they will take."""

import heapq
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from app.server.live_run import LiveTask
from app.server.rules import Rules
from eab.config import SETTINGS, BranchingConfig
from eab.errors import LimitError
from eab.formatting import counted, human_seconds, quoted
from eab.labs.tuning.grid import Cell
from eab.labs.tuning.report import TuningReport
from eab.labs.tuning.sweeping import RESIMULATED, Item
from eab.weight_formats import split_name

HOUR: Final = 3600.0


class _Spent(NamedTuple):
    began: float
    owner: str
    seconds: float


class Admission:
    """Rejects jobs that the rules do not allow, with an explanation, before anything is loaded."""

    def __init__(self, rules: Rules, clock: Callable[[], float] = time.monotonic) -> None:
        self._rules, self._clock = rules, clock
        self._lock = threading.Lock()
        self._active: list[tuple[float, LiveTask[Any]]] = []  # with its start time (s)
        self._ended: list[_Spent] = []  # started within the last hour

    def admit(self, task: LiveTask[Any]) -> None:
        """Register a starting job. Raises LimitError, which says what it exceeds and what to do."""
        self.check_model(task.model_name)
        for config in task.job.sizes:
            for name in ("max_new_tokens", "max_paths"):
                self._check_size(name, getattr(config, name))
        with self._lock:
            start = self._clock()
            self._tidy(start)
            self._check_counts(task.owner)
            self._check_seconds(task.owner, start)
            self._active.append((start, task))

    def check_model(self, name: str) -> None:
        """Raise LimitError for a model that visitors may not choose."""
        allowed, (model, _) = self._rules.models, split_name(name)
        if allowed and model not in (*allowed, "embedded-draft"):
            raise LimitError(
                f"the model is {quoted(model)}; this server allows {', '.join(allowed)}. Run the "
                "explorer on your own machine for other models"
            )

    def check_prompt(self, tokens: int) -> None:
        """Raise LimitError if the prompt is too long; the message says how long it may be."""
        self._check_size("max_prompt_tokens", tokens)

    def limited(self, config: BranchingConfig) -> BranchingConfig:
        """The settings, with KV memory capped at the limit per run; the tokens stay the same."""
        return replace(config, kv_limit_mib=min(config.kv_limit_mib, self._rules.kv_limit_mib))

    def _check_size(self, rule: str, given: int) -> None:
        allowed = getattr(self._rules, rule)
        if given > allowed:
            what = "the prompt has" if rule == "max_prompt_tokens" else f"{rule} is"
            unit = " tokens" if rule == "max_prompt_tokens" else ""
            raise LimitError(
                f"{what} {given:,}{unit}; this server allows at most {allowed:,}. Choose less, or "
                "run the explorer on your own machine"
            )

    def _tidy(self, now: float) -> None:
        """Drop ended jobs, but keep what they cost until an hour after they started."""
        self._ended += [
            _Spent(at, task.owner, task.seconds) for at, task in self._active if not task.active
        ]
        self._active = [(at, task) for at, task in self._active if task.active]
        self._ended = [spent for spent in self._ended if now - spent.began < HOUR]

    def _check_counts(self, owner: str) -> None:
        rules, active = self._rules, [task for _, task in self._active if not task.is_over()]
        own = sum(task.owner == owner for task in active)
        if own >= rules.runs_per_visitor:
            raise LimitError(
                f"you already have {counted(own, 'run')} queued or running; this server allows "
                f"{rules.runs_per_visitor:,} at a time. Stop one, or wait until one ends"
            )
        if len(active) >= rules.max_runs:
            raise LimitError(
                f"{counted(len(active), 'run')} are queued or running, which is the limit of "
                "this server. Try again in a minute"
            )

    def _check_seconds(self, owner: str, now: float) -> None:
        rules = self._rules
        running = [_Spent(at, task.owner, task.seconds) for at, task in self._active]
        own = [
            spent for spent in (*self._ended, *running) if spent.owner == owner and spent.seconds
        ]
        seconds = sum(spent.seconds for spent in own)
        if seconds >= rules.seconds_per_hour:
            wait = max(0.0, min(spent.began for spent in own) + HOUR - now)
            raise LimitError(
                f"your runs took {human_seconds(seconds)} within an hour; this server allows "
                f"{human_seconds(rules.seconds_per_hour)}. Try again in {human_seconds(wait)}"
            )


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
