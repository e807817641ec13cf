"""What one browser tab shows on a page that runs tasks: its own result, or a recorded one.

The same for each laboratory and its measurements. The sweeps of the Tune page are in `tuning`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, cast

import streamlit as st

from app.server.live_run import LiveRun, LiveTask
from app.state import polling
from app.state.status import owner, scope, worker
from eab.engine.job import Job, State
from eab.labs.bmc import EXPERIMENTS, Experiment, is_presentable
from eab.labs.measurement import Report
from eab.labs.variants import has_all_runs
from eab.lessons import bundled_runs
from eab.run import RunFold
from eab.weight_formats import AS_LOADED, split_name


@dataclass(frozen=True)
class Entry(Generic[State]):
    """A run, a sweep or a report, live or recorded."""

    key: str  # identifies it for the board and the charts
    state: State  # its events, folded
    live: LiveTask[State] | None = None  # its task; None if it was recorded
    # belongs to the lecturer whom this tab follows, and cannot be stopped here
    guest: bool = False

    @property
    def active(self) -> bool:
        """Whether its task is active."""
        return self.live is not None and self.live.active

    @property
    def locked(self) -> AbstractContextManager[object]:
        """A context in which the state does not change."""
        return self.live.lock if self.live is not None else nullcontext()


def live_entry(live: LiveTask[State]) -> Entry[State]:
    """The entry of a task that was started in this process."""
    return Entry(f"live-{live.id}", live.state, live)


@dataclass(frozen=True)
class Slot(Generic[State]):
    """A place in one browser tab that shows one entry at a time.

    The current entry is the one started last. Until it can be drawn, the page displays the entry
    before it.
    """

    name: str  # in the session and in the URL
    kind: type[State]
    recorded: Callable[[], State]  # returns the state to show before anything is started here
    drawable: Callable[[LiveTask[State]], bool]  # whether a live entry can be drawn
    # whether a task that the URL names belongs in this slot
    accepts: Callable[[LiveTask[State]], bool] = lambda _: True

    @property
    def filled(self) -> bool:
        """Whether the slot has an entry."""
        return self._session_key in st.session_state

    def current(self) -> Entry[State]:
        """The entry started or opened last; in a new tab, the task of its URL or the recording."""
        if not self.filled:
            recorded = Entry("recorded", self.recorded())
            live = self.find(st.query_params.get(self.name, ""))
            if live is None:
                self.show(recorded)
            else:
                self._hold(live_entry(live), recorded)
        return self._held[0]

    def displayed(self) -> Entry[State]:
        """What to draw: the current entry, or the previous one until the current can be drawn."""
        current, (_, before) = self.current(), self._held
        waiting = current.live is not None and not self.drawable(current.live)
        return before if waiting and before is not None else current

    def find(self, live_id: str) -> LiveTask[State] | None:
        """The task with this id in this process, if it belongs in this slot."""
        live = worker().find(live_id, self.kind)
        return live if live is not None and self.accepts(live) else None

    def show(self, entry: Entry[State]) -> None:
        """Make this the current entry, without a previous one."""
        self._hold(entry, None)

    def start(self, job: Job[State]) -> Entry[State]:
        """Start a job, stop the previous entry, and return that, to be shown until the new one can
        be drawn. Raises LimitError if the rules forbid it; the current entry then continues.
        """
        live, before = worker().start(job, owner(), scope()), self.displayed()
        self.stop()
        self._hold(live_entry(live), before)
        return before

    def stop(self) -> None:
        """Stop the current entry, if it is active and not a guest; its results so far stay."""
        held = self._held[0] if self.filled else None
        if held is not None and held.live is not None and not held.guest:
            held.live.stop()

    def watch(self, active: bool, displayed: Entry[State] | None = None) -> None:
        """Write the entry into the URL, show its progress, and redraw once it can be drawn."""
        note_in_url(self.in_url())

        def is_outdated() -> bool:
            return displayed is not None and self.displayed().key != displayed.key

        polling.watch(lambda: self.current().live, active, is_outdated)

    def in_url(self) -> dict[str, str]:
        """URL parameters by which a reload finds the active entry, or else the displayed one."""
        current = self.current()
        live = (current if current.active else self.displayed()).live
        return {self.name: live.id} if live is not None else {}

    def _hold(self, current: Entry[State], before: Entry[State] | None) -> None:
        st.session_state[self._session_key] = (current, before)

    @property
    def _held(self) -> tuple[Entry[State], Entry[State] | None]:
        held = st.session_state[self._session_key]
        return cast(tuple[Entry[State], Entry[State] | None], held)

    @property
    def _session_key(self) -> str:
        return f"{self.name}_slot"


def of_kind(kind: str) -> Callable[[LiveTask[Any]], bool]:
    """A check that accepts only jobs of this kind."""
    return lambda live: live.job.kind == kind


def has_ended_with_texts(live: LiveRun) -> bool:
    """Whether a slot can draw this run: it has ended, and has at least one step."""
    return not live.active and live.state.run is not None and bool(live.state.run.steps)


def note_in_url(parameters: dict[str, str]) -> None:
    """Write URL parameters by which a reload finds the entry; a page change removes them."""
    changed = {
        name: value for name, value in parameters.items() if st.query_params.get(name) != value
    }
    if changed:
        st.query_params.update(changed)


def _is_complete(live: LiveTask[Any]) -> bool:
    return not live.active and live.state.complete


def _has_runs(live: LiveTask[Report]) -> bool:
    """Whether there is a run of every variant; repeats for the times may still be running."""
    return has_all_runs(live.state)


def _is_presentable(live: LiveTask[Report]) -> bool:
    return not live.active and is_presentable(live.state)


BATCHING: Final = Slot("batching", Report, bundled_runs.batching, _is_complete, of_kind("serving"))
FORMATS: Final = Slot("formats", Report, bundled_runs.formats, _is_complete, of_kind("formats"))
CACHES: Final = Slot("cache_variants", Report, bundled_runs.caches, _has_runs, of_kind("caches"))
DRAFT_LENGTHS: Final = Slot(
    "draft_length_variants",
    Report,
    bundled_runs.draft_lengths,
    _has_runs,
    of_kind("drafts"),
)
BMC: Final[dict[Experiment, Slot[Report]]] = {
    name: Slot(
        f"bmc_{name}",
        Report,
        partial(bundled_runs.bmc, name),
        _is_presentable,
        of_kind(f"bmc {name}"),
    )
    for name in EXPERIMENTS
}
# the run on Explore with weights in fewer bits
QUANTIZED: Final = Slot(
    "quantized",
    RunFold,
    bundled_runs.quantized,
    has_ended_with_texts,
    accepts=lambda live: split_name(live.model_name)[1] != AS_LOADED,
)
