"""The runs that pages watch, served in shared forward passes: one scheduler per loaded model. The
newest passes are visible to everyone, as numbers without prompts. `serve` may run without the
worker's lock; everything else needs it.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

from app.server.rules import PRIVATE, KvTotal, Rules
from app.server.tasks import LiveRun, QueuePosition, explain, position_in
from eab import token_text
from eab.analysis.schedule import ScheduledPass, ScheduleRecorder
from eab.formatting import human_bytes, shortened
from eab.lessons.bundled_runs import prompts
from eab.run.events import Event

if TYPE_CHECKING:
    import torch

    from eab.engine.caches.prefix_cache import PrefixCache
    from eab.engine.handle import Handle
    from eab.engine.models.base import LanguageModel
    from eab.engine.request import Request
    from eab.engine.scheduler import Scheduler


KEPT_PASSES: Final = 200


@dataclass(frozen=True, slots=True)
class LoggedPass:
    """A shared forward pass."""

    ended_at: float  # when it ended, on the clock of `time.monotonic`
    waiting: int
    record: ScheduledPass
    owners: Mapping[int, str]  # owner of each run, by run number


@dataclass(frozen=True, slots=True)
class ServingNow:
    """The state of serving at one moment."""

    passes: tuple[LoggedPass, ...]  # the newest ones, oldest first
    running: int  # in the batch
    waiting: int  # for a slot
    taking_turns: int  # sweeps and measurements that wait or take turns
    at: float  # on the clock of `time.monotonic`

    @property
    def busy(self) -> bool:
        """Whether any run is being served or waiting."""
        return bool(self.running or self.waiting)

    def of_owner(self, owner: str) -> dict[str, str]:
        """The number of this owner's newest run, and of other tasks, if there are any; by title."""
        owners = {run: each for shared in self.passes for run, each in shared.owners.items()}
        own = [run for run, each in owners.items() if self.busy and each == owner]
        found = {"Your run": str(max(own))} if own else {}
        return found | ({"Other tasks": str(self.taking_turns)} if self.taking_turns else {})


class ServingLog:
    """The newest passes, written by one thread."""

    def __init__(self) -> None:
        # Oldest first. Replaced, never changed in place: other threads may read it at any time.
        self.passes: tuple[LoggedPass, ...] = ()
        self._recorder, self._next = ScheduleRecorder(), count(1)
        self._numbers: dict[str, int] = {}  # by id

    def note(self, seconds: float, waiting: int, events: Mapping[LiveRun, Sequence[Event]]) -> None:
        """Add a pass."""
        numbers = {self._number(live): live for live in events}
        record = self._recorder.record(
            seconds, {number: events[live] for number, live in numbers.items()}
        )
        if record.served:
            owners = {row.run: numbers[row.run].owner for row in record.served}
            new = LoggedPass(time.monotonic(), waiting, record, owners)
            self.passes = (*self.passes[1 - KEPT_PASSES :], new)

    def forget(self, live: LiveRun) -> None:
        """Free the slot of a run that ended."""
        number = self._numbers.pop(live.id, None)
        if number is not None:
            self._recorder.forget(number)

    def _number(self, live: LiveRun) -> int:
        if live.id not in self._numbers:
            self._numbers[live.id] = next(self._next)
        return self._numbers[live.id]


MAX_RUNNING: Final = 32  # runs of one model that are served at the same time
KV_SHARE: Final = 0.25  # share of the memory of the machine, its container, or a GPU


def kv_total_bytes(rule: KvTotal, device: "torch.device | None" = None) -> int:
    """KV memory in bytes that all runs of a device may hold; the device defaults to the CPU."""
    from eab.engine.models.machine import CPU, total_memory
    from eab.engine.scheduler import KV_LIMIT_MIB

    if not isinstance(rule, str):
        return rule * 2**20
    return int(KV_SHARE * total_memory(device or CPU)) or KV_LIMIT_MIB * 2**20


def _is_bundled(request: "Request") -> bool:
    """Whether the prompt is bundled, so nothing in it was typed by a visitor."""
    typed = request.continued or request.messages or request.config.system
    return not typed and request.prompt in prompts()


_LABEL: Final = 60  # characters
_UNSHOWN: Final = "text of another run"


@dataclass(frozen=True, slots=True)
class SegmentNow:
    """A segment at one moment."""

    number: int
    parent: int  # number of the segment before it; -1 for none
    text: str | None  # None if the text is another visitor's
    rows: int
    readers: int  # runs that read the segment in place
    found: int  # how many runs, or threshold probes, found the segment at their start


@dataclass(frozen=True, slots=True)
class PrefixesNow:
    """The prefix cache of a model at one moment."""

    model: str  # with its weight format
    row_bytes: int
    byte_limit: int
    tokens_asked: int  # tokens of all prompts since the model was loaded
    tokens_found: int  # how many of these tokens did not have to be computed again
    can_reuse: bool  # whether texts with the same start can share the model's rows
    segments: Sequence[SegmentNow]  # parents come before their children

    @property
    def bytes_held(self) -> int:
        """Bytes held by all segments."""
        return self.row_bytes * sum(segment.rows for segment in self.segments)

    @property
    def measures(self) -> dict[str, str]:
        """What the cache holds and has saved, by title."""
        share = self.tokens_found / max(1, self.tokens_asked)
        return {
            "Segments": f"{len(self.segments):,}",
            "Held": human_bytes(self.bytes_held),
            "At most": human_bytes(self.byte_limit),
            "Runs that read it": str(sum(one.readers for one in self.segments if one.parent < 0)),
            "Prompt tokens": f"{self.tokens_asked:,}",
            "Of these found": f"{share:.0%}",
        }

    @property
    def why_empty(self) -> str:
        """Why there are no segments; empty if there are some."""
        if self.segments:
            return ""
        if self.byte_limit and not self.tokens_asked:
            return "Empty: no run has been made yet."
        if self.byte_limit:
            most = human_bytes(self.byte_limit)
            return f"Empty: no text fitted into it (at most {most}), or runs needed the memory."
        if self.can_reuse:
            return "Turned off (rule prefix_cache_mib)."
        return (
            "The memory of this model cannot be reused for a longer text: its states are those "
            "after the last token, or its rows depend on the length."
        )

    @property
    def table(self) -> list[list[str]]:
        """The segments as table rows: text, rows, bytes, readers, found."""
        return [
            [
                shortened(_UNSHOWN if one.text is None else token_text.visible(one.text), _LABEL),
                f"{one.rows:,}",
                human_bytes(one.rows * self.row_bytes),
                f"{one.readers}",
                f"{one.found:,}",
            ]
            for one in self.segments
        ]


def _shown(
    model: "LanguageModel", cache: "PrefixCache | None", known: Sequence[tuple[int, ...]]
) -> PrefixesNow:
    from eab.engine.caches.prefix_cache import can_reuse

    if cache is None:
        return PrefixesNow(model.card.full_name, 0, 0, 0, 0, can_reuse(model.kv_shape), ())
    segments = []
    numbers: dict[int, int] = {}  # by id() of the segment
    for segment, text in cache.texts():
        own = any(whole[: len(text)] == text for whole in known)
        numbers[id(segment)] = len(numbers)
        shown = SegmentNow(
            numbers[id(segment)],
            numbers.get(id(segment.parent), -1),
            token_text.join(map(model.text, segment.tokens)) if own else None,
            len(segment.tokens),
            segment.readers,
            segment.found,
        )
        segments.append(shown)
    return PrefixesNow(
        model.card.full_name,
        cache.shape.row_bytes,
        cache.byte_limit,
        cache.tokens_asked,
        cache.tokens_found,
        True,
        segments,
    )


class _Submitted(NamedTuple):
    live: LiveRun
    model: "LanguageModel"
    request: "Request"
    draft: "LanguageModel | None"


class BatchedRuns:
    """All runs, by model. Models cannot share forward passes, so they take turns."""

    def __init__(self, max_running: int = MAX_RUNNING, rules: Rules = PRIVATE) -> None:
        self.max_running, self.rules = max_running, rules
        # Kept while a model is loaded, even without runs; None for a model without a prefix cache.
        self._prefixes: WeakKeyDictionary[LanguageModel, PrefixCache | None] = WeakKeyDictionary()
        self._schedulers: dict[LanguageModel, Scheduler] = {}
        self._lives: dict[Handle, LiveRun] = {}
        # `tidy` queues these, because only the serving thread may submit to a scheduler.
        self._submitted: list[_Submitted] = []
        self._log = ServingLog()

    @property
    def active(self) -> int:
        """The number of runs that wait or are being served."""
        return len(self._lives) + len(self._submitted)

    def submit(
        self,
        live: LiveRun,
        model: "LanguageModel",
        request: "Request",
        draft: "LanguageModel | None",
    ) -> None:
        """Queue a run, unless it has been stopped in the meantime."""
        if live.advance_to("waiting"):
            self._submitted.append(_Submitted(live, model, request, draft))

    def position(self, live: LiveRun) -> QueuePosition | None:
        """The position of a run in its model's queue; None if it is not waiting."""
        for scheduler in self._schedulers.values():
            waiting = [self._lives[handle] for handle in scheduler.waiting]
            if live in waiting:
                running = [self._lives[handle] for handle in scheduler.running]
                return position_in(waiting, live, running, self.max_running)
        return None

    def tidy(self) -> None:
        """Queue new runs and drop ended ones; a model without runs can then be freed."""
        self._queue_submitted()
        for handle, live in self._lives.items():
            if handle.ended:
                self._log.forget(live)
        self._lives = {handle: live for handle, live in self._lives.items() if not handle.ended}
        self._schedulers = {
            model: scheduler for model, scheduler in self._schedulers.items() if scheduler.busy
        }

    def _queue_submitted(self) -> None:
        for live, model, request, draft in self._submitted:
            if model not in self._schedulers:
                self._schedulers[model] = self._scheduler(model)
            handle = self._schedulers[model].submit(
                request,
                owner=live.owner,
                draft=draft,
                should_stop=live.is_over,
                scope=self._scope(live, request),
            )
            self._lives[handle] = live
        self._submitted = []

    def _scope(self, live: LiveRun, request: "Request") -> str:
        """The scope in which a run shares computed prompts."""
        everyone = self.rules.share_prefixes == "everyone"
        return "" if everyone or _is_bundled(request) else live.scope

    def _prefix_cache(self, model: "LanguageModel") -> "PrefixCache | None":
        from eab.engine.caches.prefix_cache import prefix_cache

        if model not in self._prefixes:
            limit = self.rules.prefix_cache_mib
            self._prefixes[model] = prefix_cache(model.kv_shape, limit)
        return self._prefixes[model]

    def _scheduler(self, model: "LanguageModel") -> "Scheduler":
        from eab.engine.fairness import NewcomersFirst
        from eab.engine.scheduler import Scheduler

        device = model.kv_shape.device

        def held_elsewhere() -> int:
            return sum(
                scheduler.kv_held
                for other, scheduler in self._schedulers.items()
                if other is not model and other.kv_shape.device == device
            )

        return Scheduler(
            model,
            max_running=self.max_running,
            kv_limit_mib=kv_total_bytes(self.rules.kv_total_mib, device) / 2**20,
            kv_elsewhere=held_elsewhere,
            rule=NewcomersFirst(),
            prefixes=self._prefix_cache(model),
        )

    def prefixes_now(self, known: Sequence[tuple[int, ...]]) -> list[PrefixesNow]:
        """The prefix cache of each model that has served a run; without one, it is empty with a
        limit of 0. A text is readable only if a text in `known` starts with it.
        """
        return [_shown(model, cache, known) for model, cache in self._prefixes.items()]

    def serving_now(self, taking_turns: int) -> ServingNow:
        """The newest shared passes, and how many runs are served or waiting now."""
        schedulers = self._schedulers.values()
        running = sum(len(scheduler.running) for scheduler in schedulers)
        waiting = sum(len(scheduler.waiting) for scheduler in schedulers)
        return ServingNow(self._log.passes, running, waiting, taking_turns, time.monotonic())

    def serve(self) -> None:
        """Run one shared pass for each model."""
        for scheduler in list(self._schedulers.values()):
            start, new = time.perf_counter(), dict[LiveRun, list[Event]]()
            try:
                for handle in scheduler.begin():
                    new.setdefault(self._lives[handle], []).extend(self._deliver(handle))
                for handle in scheduler.step():
                    new.setdefault(self._lives[handle], []).extend(self._deliver(handle))
                self._log.note(time.perf_counter() - start, len(scheduler.waiting), new)
            except Exception as error:  # the worker must survive any error
                for handle in (*scheduler.running, *scheduler.waiting):
                    self._lives[handle].fail(explain(error))
                scheduler.close()

    def _deliver(self, handle: "Handle") -> Sequence[Event]:
        """Apply and return a run's new events; an error ends only this run."""
        live, events = self._lives[handle], handle.new_events()
        live.reading = handle.reading
        if not live.advance_to("running"):
            handle.stop()
            return events
        try:
            for event in events:
                live.apply(event)
        except Exception as error:
            handle.stop()
            live.fail(explain(error))
        if handle.error is not None:
            live.fail(explain(handle.error))
        return events
