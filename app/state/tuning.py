"""The sweeps that one browser tab shows on the Tune page.

They are its own, by name, or the recorded ones; plus the pilot of a threshold.
"""

import hashlib
import itertools
from typing import Final

import streamlit as st

from app.server.live_run import LiveTask
from app.server.store import MAX_NAME, default_sweep_store
from app.state import status
from app.state.slot import Entry, Slot, note_in_url, of_kind
from eab.errors import StoreError
from eab.labs.jobs import sweep_job
from eab.labs.tuning.report import TuningReport, loads
from eab.lessons import bundled_runs

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
        with status.errors_as_message():
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
