"""Serve one run, or many, with a scheduler that serves nothing else.

    for event in event_stream(model, Request("Once upon a time", config)): ...
    runs = [fold(events) for events in serve(model, requests)]

To stop, stop iterating. Nothing is printed, nothing global changes, and each run has its own cache.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from eab.engine.caches.prefix_cache import PrefixCache
from eab.engine.handle import Handle
from eab.engine.models.base import LanguageModel
from eab.engine.models.stopping import Stopped, stopping_when
from eab.engine.request import Request
from eab.engine.scheduler import KV_LIMIT_MIB, MAX_RUNNING, Scheduler
from eab.run.events import Event, Pause, Predicted, RunEnded, RunStarted

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
