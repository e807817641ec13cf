"""What one browser tab shows on a page that runs tasks: its own result, or a recorded one. The same
for each laboratory and its measurements. On the Tune page, a tab keeps several sweeps by name.
"""

import hashlib
import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, cast

import streamlit as st

from app.server.store import MAX_NAME, default_sweep_store
from app.server.tasks import LiveRun, LiveTask
from app.state import session
from app.state.session import owner, scope, worker
from eab.engine.job import Job, State
from eab.errors import StoreError
from eab.labs.bmc import EXPERIMENTS, Experiment, is_presentable
from eab.labs.jobs import sweep_job
from eab.labs.measurement import Report
from eab.labs.tuning.report import TuningReport, loads
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

        session.watch(lambda: self.current().live, active, is_outdated)

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


MAX_KEPT: Final = 12
RECORDED: Final = {  # by key; the first is shown first
    "recorded": ("Recorded sweep", bundled_runs.tuning),
    "recorded-policies": ("Recorded: policies on a chat model", bundled_runs.policies),
}
_KEPT: Final = "kept_sweeps"
_RESUMED: Final = "resumed_sweep"  # key and name of the last resumed sweep
_SAVED: Final = "sweep"  # the URL parameter of a saved sweep


def _has_cells(live: LiveTask[TuningReport]) -> bool:
    return bool(live.state.cells)


SWEEP: Final = Slot("tuning", TuningReport, bundled_runs.tuning, _has_cells, of_kind("sweep"))
PILOT: Final = Slot("pilot", TuningReport, TuningReport, _has_cells, of_kind("pilot"))


def displayed_model() -> str:
    """The model of the sweep on the page, as `app.server.model_cache` names it."""
    entry = SWEEP.displayed()
    return entry.live.model_name if entry.live is not None else entry.state.model_name


def resume() -> None:
    """Resume the sweep on the page, if its plan is known: run the cells that it lacks."""
    entry, name = SWEEP.displayed(), displayed_name()
    if (plan := entry.state.plan) is None:
        return
    known = tuple(entry.state.cells)
    SWEEP.start(sweep_job("sweep", plan.grid, plan.prompts, displayed_model(), known))
    st.session_state[_RESUMED] = (SWEEP.current().key, name)


def keep_ended() -> None:
    """Keep this tab's current sweep once it has ended; if there are too many, drop the oldest. A
    resumed sweep takes the place of the one that it continued.
    """
    current = SWEEP.current()
    if current.live is None or current.active or not current.state.cells:
        return
    if _name_of(current.key):
        return
    resumed, name = st.session_state.get(_RESUMED, ("", ""))
    if resumed == current.key and name in _kept():
        _kept()[name] = current
        return
    _keep("Sweep", current)


def open_file(data: bytes, name: str) -> None:
    """Keep and show a downloaded sweep. Raises RecordError if the file is not a sweep."""
    report = loads(data, name)
    _open(f"file-{hashlib.sha256(data).hexdigest()[:16]}", name, report)


def open_saved(sweep_id: str) -> None:
    """Keep and show a sweep of the store. Raises StoreError or RecordError if unreadable."""
    store = default_sweep_store()
    if store is None:
        raise StoreError("saved sweeps are switched off on this server; open a sweep file instead")
    saved, report = store.load(sweep_id)
    _open(_saved_key(sweep_id), saved.name, report)


def follow_link() -> None:
    """In a new tab, show the saved sweep that the URL names; explain why if it cannot be opened."""
    sweep_id = st.query_params.get(_SAVED, "")
    if not SWEEP.filled and sweep_id and SWEEP.find(st.query_params.get(SWEEP.name, "")) is None:
        with session.errors_as_message():
            open_saved(sweep_id)


def note_saved_in_url() -> None:
    """Write the saved sweep on the page into the URL, by which reloads and links find it."""
    key = SWEEP.displayed().key
    if key.startswith(_saved_key("")):
        note_in_url({_SAVED: key.removeprefix(_saved_key(""))})
    else:
        st.query_params.pop(_SAVED, None)


def _kept() -> dict[str, Entry[TuningReport]]:
    """The ended sweeps of this tab by name, oldest first."""
    kept: dict[str, Entry[TuningReport]] = st.session_state.setdefault(_KEPT, {})
    return kept


def _keep(name: str, entry: Entry[TuningReport]) -> str:
    """Keep a sweep under this name, with a number if another one has it; return the name used."""
    first = name = name[:MAX_NAME]
    for number in itertools.count(2):
        if name not in names():
            break
        name = f"{first} ({number})"
    _kept()[name] = entry
    if len(_kept()) > MAX_KEPT:
        del _kept()[next(iter(_kept()))]
    return name


def _name_of(key: str) -> str:
    """The name of the kept sweep with this key; empty if there is none."""
    return next((name for name, entry in _kept().items() if entry.key == key), "")


def names() -> list[str]:
    """The names of all sweeps that can be shown, the recorded ones first."""
    return [*(name for name, _ in RECORDED.values()), *_kept()]


def displayed_name() -> str:
    """The name of the sweep on the page; empty while it is active."""
    key = SWEEP.displayed().key
    return RECORDED[key][0] if key in RECORDED else _name_of(key)


def show(name: str) -> None:
    """Show the sweep with this name."""
    st.query_params.pop(SWEEP.name, None)
    key = next((key for key, (known, _) in RECORDED.items() if known == name), "recorded")
    SWEEP.show(_kept().get(name) or Entry(key, RECORDED[key][1]()))


def _open(key: str, name: str, report: TuningReport) -> None:
    show(_name_of(key) or _keep(name, Entry(key, report)))


def _saved_key(sweep_id: str) -> str:
    return f"saved-{sweep_id}"
