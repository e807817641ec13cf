"""A live task, shared by the worker that runs it and the pages that show it; which tasks may start
under the server's rules, and how long they will take.
"""

import heapq
import logging
import secrets
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias

from msgspec import structs

from app.server.rules import Rules
from eab.config import SETTINGS, BranchingConfig
from eab.engine.job import Job, State
from eab.engine.request import Request
from eab.errors import EabError, LimitError
from eab.formatting import counted, human_seconds, quoted
from eab.labs.tuning.grid import Cell
from eab.labs.tuning.report import TuningReport
from eab.labs.tuning.sweeping import RESIMULATED, Item
from eab.run import RunFold, RunState
from eab.run.events import EndReason, Pause, Progressed, RunEnded
from eab.weight_formats import split_name

_LOG: Final = logging.getLogger(__name__)
UNWATCHED_SECONDS: Final = 120.0  # browsers run the timers of hidden tabs only once a minute

LiveStatus = Literal["loading", "waiting", "running", "ended", "failed"]


class LiveTask(Generic[State]):
    """A job that the worker runs in turns. A turn ends with a Pause; for a run, it is one step."""

    def __init__(self, job: Job[State], owner: str = "", scope: str = "") -> None:
        self.id = secrets.token_urlsafe(12)  # random, because anyone who knows it can open the run
        self.job, self.owner, self.scope = job, owner, scope
        self.state = job.state  # the events, folded
        self.lock = threading.Lock()  # hold it to read `state` or `events`
        self.events: list[Any] = [*job.begun]
        self.status: LiveStatus = "loading"
        self.message = ""  # why it failed
        # of its prompt, the tokens that were read, and all, while a run reads it
        self.reading: tuple[int, int] | None = None
        # From the start to the end of the last turn, including the turns of other tasks in between.
        self.turns, self.seconds = 0, 0.0
        self._started_at = 0.0
        self._stop = threading.Event()
        self._watched_at = time.monotonic()

    @property
    def model_name(self) -> str:
        """The model's name, as in `app.server.model_cache`."""
        return self.job.model_name

    @property
    def request(self) -> Request:
        """The prompt and settings; the first request if there are several."""
        return self.job.requests[0]

    @property
    def active(self) -> bool:
        """Whether the task can still change."""
        return self.status in ("loading", "waiting", "running")

    @property
    def ending(self) -> tuple[EndReason, str]:
        """Why the task ended, and an error message, which may be empty."""
        ended = self.state.ended
        return ("failed", self.message) if ended is None else (ended.reason, ended.message)

    @property
    def should_stop(self) -> bool:
        """Whether a user stopped the task, or nobody watches it."""
        return self._stop.is_set() or time.monotonic() - self._watched_at > UNWATCHED_SECONDS

    def is_over(self) -> bool:
        """Whether the task needs no further turn."""
        return self.should_stop or not self.active

    def stop(self) -> None:
        """Stop after the current turn, or immediately if there was none; the events stay."""
        self._stop.set()
        self.end_if_not_started()

    def end_if_not_started(self) -> None:
        """End the task immediately if it has not had a turn yet."""
        with self.lock:
            if self.status in ("loading", "waiting"):
                self._apply(RunEnded(0, "stopped"))

    def advance_to(self, status: Literal["waiting", "running"]) -> bool:
        """Go from `loading` to `waiting`, or on to `running`; False if the task has ended."""
        with self.lock:
            if self.active and self.status != status:
                self.status, self._started_at = status, time.perf_counter()
            return self.active

    @property
    def _run(self) -> RunState | None:
        return self.state.run if isinstance(self.state, RunFold) else None

    @property
    def tokens(self) -> int:
        """How many tokens a run has; 0 for other tasks."""
        run = self._run
        if run is None:
            return 0
        others = (sample for each in (run.explored, *run.repeats.values()) for sample in each)
        return sum(len(sample.tokens) for sample in others) + sum(
            len(path.tokens) for path in run.paths
        )

    @property
    def kv_bytes(self) -> int:
        """KV memory of a run in bytes, as measured in its last step; 0 for other tasks."""
        run = self._run
        if run is None or (kv := run.last_kv) is None:
            return 0
        return kv.bytes_alone(run.started.model.row_bytes)

    def texts(self) -> list[tuple[int, ...]]:
        """The token ids of each text of a run, prompt included; empty for other tasks."""
        with self.lock:
            run = self._run
            if run is None:
                return []
            prompt = run.started.prompt_tokens
            return [
                (*prompt, *(token.id for token in run.tokens(leaf.id))) for leaf in run.leaves()
            ]

    def mark_watched(self) -> None:
        """Note that a page is showing the task right now."""
        self._watched_at = time.monotonic()

    def run_turn(self, events: Iterator[Any]) -> bool:
        """Apply the events of one turn; return whether there are more."""
        for event in events:
            self.apply(event)
            if isinstance(event, Pause):
                return True
        return False

    def apply(self, event: Any) -> None:
        """Apply one event; a Pause ends a turn."""
        with self.lock:
            self._apply(event)
        if isinstance(event, Pause):
            self.turns += 1
            self.seconds = time.perf_counter() - self._started_at

    def _apply(self, event: Any) -> None:
        if self.job.stops_after is not None and isinstance(event, self.job.stops_after):
            self._stop.set()
        if isinstance(event, RunEnded) and event.reason == "stopped" and not self._stop.is_set():
            event = structs.replace(event, reason="unwatched")
        if isinstance(event, RunEnded) and self.job.begun and self._run is not None:
            event = RunEnded(len(self._run.steps), "finished")  # the run was, and stays so
        if not isinstance(event, Progressed):
            self.events.append(event)
        self.state.apply(event)
        if self.state.ended is not None and self.active:
            self.status = "ended"

    def fail(self, message: str) -> None:
        """Fail with this explanation; the events stay."""
        with self.lock:
            if not self.active:
                return
            self.message = message
            if self.job.begun:
                self._apply(RunEnded(0, "stopped"))
            else:
                self.status = "failed"


def explain(error: BaseException) -> str:
    """The reason why a run failed, for its user."""
    if isinstance(error, EabError):
        return str(error)
    cause = ": ".join(filter(None, (type(error).__name__, str(error))))
    return (
        f"the run stopped with an error ({cause}). Its tokens so far are kept; try other settings"
    )


def explain_restart(error: BaseException) -> str:
    """Log the error without prompts or texts; return the explanation for users of active runs."""
    name, frames = type(error).__name__, "".join(traceback.format_tb(error.__traceback__))
    _LOG.error("The worker stopped with %s and was restarted.\n%s", name, frames)
    return (
        f"the server's worker stopped with an error ({name}) and was restarted. The tokens so "
        "far are kept; run the prompt again"
    )


LiveRun: TypeAlias = LiveTask[RunFold]


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


def run_seconds(
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
