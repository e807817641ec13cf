"""A live task, shared by the worker that runs it and the pages that show it."""

import logging
import secrets
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any, Final, Generic, Literal, TypeAlias

from msgspec import structs

from eab.engine.job import Job, State
from eab.engine.request import Request
from eab.errors import EabError
from eab.run import RunFold, RunState
from eab.run.events import EndReason, Pause, Progressed, RunEnded

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
