"""Decides which runs may start under the server's rules."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from app.server.live_run import LiveTask
from app.server.rules import Rules
from eab.config import BranchingConfig
from eab.errors import LimitError
from eab.formatting import counted, human_seconds, quoted
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
