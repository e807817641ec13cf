"""Serve one run, or many, with a scheduler that serves nothing else.

    for event in event_stream(model, Request("Once upon a time", config)): ...
    runs = [fold(events) for events in serve(model, requests)]

To stop, stop iterating. Nothing is printed, nothing global changes, and each run has its own cache.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from eab.engine.caches.prefix_cache import PrefixCache
from eab.engine.handle import Handle
from eab.engine.models.base import LanguageModel
from eab.engine.models.stopping import Stopped, stopping_when
from eab.engine.request import Request
from eab.engine.scheduler import KV_LIMIT_MIB, MAX_RUNNING, Scheduler
from eab.errors import EabError
from eab.run.events import Event, Pause, Predicted, Probed, RunEnded, RunStarted

AnyEvent = TypeVar("AnyEvent")


def event_stream(
    model: LanguageModel,
    request: Request,
    draft: LanguageModel | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    prefixes: PrefixCache | None = None,
) -> Iterator[Event]:
    """Continue the prompt, and branch as the settings say; yields the events as they happen.

    A run that exceeds its memory limit, or whose server fails, ends with RunEnded("failed").
    `should_stop` ends a run early (see `Scheduler.submit`); `prefixes` is the cache that earlier
    runs of the model have filled.

    Raises:
        PromptError, ConfigError, ModelError: It cannot start; see `eab.engine.build.build`.
    """
    scheduler = Scheduler(model, prefixes=prefixes)
    try:
        yield from scheduler.submit(request, draft=draft, should_stop=should_stop)
    finally:
        scheduler.close()  # frees its memory at once, even if the caller stops iterating


def serve(
    model: LanguageModel,
    requests: Iterable[Request],
    draft: LanguageModel | None = None,
    *,
    max_running: int = MAX_RUNNING,
    kv_limit_mib: float = KV_LIMIT_MIB,
    prefixes: PrefixCache | None = None,
) -> list[Handle]:
    """Continue many prompts, several in each forward pass (continuous batching).

    Args:
        requests: What to run, in this order.
        max_running: How many runs are served at the same time.
        kv_limit_mib, prefixes: See `eab.engine.scheduler.Scheduler`.

    Returns:
        A handle for each request. Iterating it yields the events of its run, the same as from
        `event_stream`, and serves the other runs, too. An error ends only the run that causes it:
        iterating its handle raises the error.
    """
    scheduler = Scheduler(
        model, max_running=max_running, kv_limit_mib=kv_limit_mib, prefixes=prefixes
    )
    return [scheduler.submit(request, draft=draft) for request in requests]


def stop_when(
    events: Iterable[AnyEvent], requested: Callable[[], bool]
) -> Iterator[AnyEvent | RunEnded]:
    """The same events, up to the first Pause, or forward pass, in which `requested()` is true; then
    RunEnded("stopped").
    """
    steps = 0  # steps that chose tokens; chunks of a long prompt choose none
    left = iter(events)
    while True:
        try:
            with stopping_when(requested):
                event = next(left)
        except StopIteration:
            return
        except Stopped:
            yield RunEnded(steps, "stopped")
            return
        yield event
        if isinstance(event, Predicted | RunStarted):
            steps = event.step + 1 if isinstance(event, Predicted) else 0
        if isinstance(event, Pause) and requested():
            yield RunEnded(steps, "stopped")
            return


Tag = TypeVar("Tag")

# The most paths at once. With more, passes save no time, and all runs end late: of 32 runs of
# SmolLM2 (8 paths, 12 tokens), the first ended after 3 to 6 s with 64, after 11 to 16 s with 256.
PATHS_ON_CPU: Final = 64


@dataclass(slots=True)
class ActiveRun(Generic[Tag]):
    """An active run."""

    tag: Tag  # by which the caller identifies it
    events: list[Event] = field(default_factory=list)
    # Its share of the time of its passes; each pass is divided by the tokens of its runs
    seconds: float = 0.0
    error: Exception | None = None

    @property
    def step(self) -> int:
        """The step that the run has reached."""
        last = self.events[-1] if self.events else None
        return 0 if last is None or isinstance(last, Probed | RunStarted) else last.step

    @property
    def problem(self) -> str:
        """Why the run failed; empty if it did not."""
        end = self.events[-1] if self.events else None
        if self.error is not None:
            return str(self.error) if isinstance(self.error, EabError) else repr(self.error)
        return end.message if isinstance(end, RunEnded) and end.reason == "failed" else ""


class ManyRuns(Generic[Tag]):
    """Waiting runs, and as many active ones as the scheduler serves at a time.

    Args:
        prefixes: The cache in which runs find the rows of common prefixes; None to use none.
        first_alone: Whether no other run starts before one has ended, so that a result is there
            early. On a GPU, this is never necessary.
    """

    def __init__(
        self,
        model: LanguageModel,
        draft: LanguageModel | None = None,
        prefixes: PrefixCache | None = None,
        *,
        first_alone: bool = False,
    ) -> None:
        self._draft = draft
        self._scheduler = Scheduler(model, prefixes=prefixes)
        self._waiting: deque[tuple[Tag, Request]] = deque()
        self._active: dict[Handle, ActiveRun[Tag]] = {}
        self._alone = first_alone

    @property
    def busy(self) -> bool:
        """Whether any runs are waiting or active."""
        return bool(self._waiting or self._active)

    @property
    def active(self) -> list[ActiveRun[Tag]]:
        """The runs that have started and not ended."""
        return [*self._active.values()]

    def add(self, tag: Tag, request: Request, *, first: bool = False) -> None:
        """Queue a run, ahead of all others if `first`."""
        (self._waiting.appendleft if first else self._waiting.append)((tag, request))

    def step(self) -> list[ActiveRun[Tag]]:
        """Do one forward pass; returns the runs that ended."""
        self._submit()
        tokens_before = {handle: handle.tokens for handle in self._active}
        start = time.perf_counter()
        changed = self._scheduler.step()
        seconds = time.perf_counter() - start
        tokens = {handle: handle.tokens - before for handle, before in tokens_before.items()}
        all_tokens = max(1, sum(tokens.values()))
        ended = []
        for handle in changed:
            run = self._active[handle]
            run.events += handle.new_events()
            run.seconds += seconds * tokens[handle] / all_tokens
            if handle.ended:
                run.error = handle.error
                ended.append(self._active.pop(handle))
        self._alone = self._alone and not ended
        return ended

    def _has_room(self, request: Request) -> bool:
        if self._scheduler.model.kv_shape.device.type == "cpu":
            configs = [asked.config for asked in (request, *(run.request for run in self._active))]
            paths = sum(1 if one.policy == "greedy" else one.max_paths for one in configs)
            if self._active and (paths > PATHS_ON_CPU or self._alone):
                return False
        return len(self._active) < self._scheduler.max_running

    def _submit(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][1]):
            tag, request = self._waiting.popleft()
            draft = self._draft if request.config.drafter == "model" else None
            self._active[self._scheduler.submit(request, draft=draft)] = ActiveRun(tag)

    def close(self) -> None:
        """Drop all runs."""
        self._scheduler.close()
