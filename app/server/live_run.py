"""A run in the making, as the worker that makes it and the pages that watch it share it. Knows
nothing of Streamlit.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar

from eab.analysis.sweep import Sweep
from eab.bmc.results import Report
from eab.config import BranchingConfig
from eab.events import EndReason, Pause, RunEnded
from eab.run import RunFold

if TYPE_CHECKING:
    from eab.models.base import LanguageModel

UNWATCHED_SECONDS: Final = 120.0  # browsers slow the timers of hidden tabs down to one a minute

LiveStatus = Literal["loading", "waiting", "running", "ended", "failed"]
State = TypeVar("State", RunFold, Sweep, Report)
Make: TypeAlias = "Callable[[LanguageModel, str, BranchingConfig], Iterator[Any]]"


class Live(Generic[State]):
    """A run, a comparison of several, or a measurement: `make` gives its events, `state` folds
    them.

    Read `state` and `events` while holding `lock`; `message` says why it failed. owner: whose it
    is, for a fair order.
    turns: steps taken, at most `longest`; seconds: what they took, measured.
    """

    def __init__(
        self,
        prompt: str,
        config: BranchingConfig,
        model_name: str,
        state: State,
        make: Make,
        owner: str,
        longest: int,
    ) -> None:
        self.id = secrets.token_urlsafe(12)  # unguessable: it is the only key to the run
        self.prompt, self.config, self.model_name = prompt, config, model_name
        self.make, self.owner, self.longest = make, owner, longest
        self.lock = threading.Lock()
        self.events: list[Any] = []  # of what `state` folds
        self.state: State = state
        self.status: LiveStatus = "loading"
        self.message = ""
        self.turns, self.seconds = 0, 0.0
        self._stop = threading.Event()
        self._watched_at = time.monotonic()

    @property
    def active(self) -> bool:
        """Whether it still changes."""
        return self.status in ("loading", "waiting", "running")

    @property
    def ending(self) -> tuple[EndReason, str]:
        """Why it ended, and what went wrong, if anything did."""
        ended = self.state.ended
        return ("failed", self.message) if ended is None else (ended.reason, ended.message)

    @property
    def stopping(self) -> bool:
        """Whether someone asked it to stop, or nobody watches it any more."""
        return self._stop.is_set() or time.monotonic() - self._watched_at > UNWATCHED_SECONDS

    def stop(self) -> None:
        """End the run at its next step, or at once if it has not begun; what it has stays."""
        self._stop.set()
        self.end_if_not_begun()

    def end_if_not_begun(self) -> None:
        """End it at once if it takes no turns yet."""
        with self.lock:
            if self.status in ("loading", "waiting"):
                self._take(RunEnded(0, "stopped"))

    def go_on(self, now: Literal["waiting", "running"]) -> bool:
        """From `loading` to `waiting`, and on to `running`, unless it ended meanwhile."""
        with self.lock:
            if self.active:
                self.status = now
            return self.active

    def watch(self) -> None:
        """Say that somebody looks at it."""
        self._watched_at = time.monotonic()

    def take_turn(self, events: Iterator[Any]) -> bool:
        """Take the events of one step in, up to its Pause; whether there is more to come."""
        start = time.perf_counter()
        for event in events:
            with self.lock:
                self._take(event)
            if isinstance(event, Pause):
                self.turns += 1
                self.seconds += time.perf_counter() - start
                return True
        return False

    def _take(self, event: Any) -> None:
        if isinstance(event, RunEnded) and event.reason == "stopped" and not self._stop.is_set():
            event = replace(event, reason="unwatched")
        self.events.append(event)
        self.state.apply(event)
        if self.state.ended is not None:
            self.status = "ended"

    def fail(self, message: str) -> None:
        """End it with an explanation; the events so far stay."""
        with self.lock:
            if self.active:
                self.message, self.status = message, "failed"


LiveRun: TypeAlias = Live[RunFold]
LiveSweep: TypeAlias = Live[Sweep]
LiveReport: TypeAlias = Live[Report]
