"""The runs that were started or opened in this tab, and which two of them are pinned."""

from dataclasses import dataclass, replace
from typing import Final, cast

import streamlit as st

from app.server.live_run import LiveRun
from app.state import tab
from app.state.process import worker
from app.state.tab import Details, OpenRun
from eab.board.still import thumbnail
from eab.config import SETTINGS, BranchingConfig
from eab.errors import LinkError
from eab.run import RunFold, RunState, fold

MAX_RUNS: Final = 12
MAX_PINNED: Final = 2
_RUNS: Final = "past_runs"
_PINNED: Final = "pinned_runs"


@dataclass(frozen=True)
class PastRun:
    """An ended run of this tab."""

    key: str
    # without the events of a live run, so that the server may forget them
    details: Details
    prompt: str
    config: BranchingConfig
    picture: str  # its tree as a small SVG
    live_id: str = ""  # empty for a recorded run

    @property
    def live(self) -> LiveRun | None:
        """The run in this process; None if it was recorded, or the server has forgotten it."""
        return worker().find(self.live_id, RunFold) if self.live_id else None

    @property
    def run(self) -> RunState | None:
        """The run; None if the server has forgotten it."""
        if not self.live_id:
            return fold(self.details.events)
        return self.live.state.run if self.live is not None else None


def note(opened: OpenRun) -> None:
    """Remember a run that no longer changes; drop the oldest unpinned run of too many."""
    run = opened.run
    if run is None or opened.key in {past.key for past in runs()}:
        return
    live = opened.live
    past = PastRun(
        opened.key,
        opened.details if live is None else replace(opened.details, events=(), source=None),
        run.started.prompt,
        run.started.config,
        thumbnail(run),
        live.id if live is not None else "",
    )
    kept = [past, *runs()]
    if len(kept) > MAX_RUNS:
        kept.remove(next(run for run in reversed(kept) if run.key not in _pinned_keys()))
    st.session_state[_RUNS] = kept


def open_again(past: PastRun) -> None:
    """Show a run of this tab again. Raises LinkError if the server has forgotten it."""
    if past.live_id:
        live = past.live
        if live is None:
            raise LinkError("this run is no longer on the server; press Run to make it again")
        tab.open_live(live)
    else:
        tab.open_recorded(past.key, past.details)


def runs() -> list[PastRun]:
    """The runs of this tab, newest first."""
    return cast(list[PastRun], st.session_state.get(_RUNS, []))


def named(key: str) -> PastRun | None:
    """The run of this tab with this key; None if it is not remembered."""
    return next((past for past in runs() if past.key == key), None)


def pinned() -> list[PastRun]:
    """The pinned runs in the order of pinning; at most MAX_PINNED."""
    by_key = {past.key: past for past in runs()}
    return [by_key[key] for key in _pinned_keys()]


def toggle_pin(key: str) -> None:
    """Pin or unpin a run; a third pin unpins the run that was pinned first."""
    keys = _pinned_keys()
    changed = [other for other in keys if other != key] if key in keys else [*keys, key]
    st.session_state[_PINNED] = changed[-MAX_PINNED:]


def differing_settings() -> list[str]:
    """The settings that differ between the runs."""
    return [name for name in SETTINGS if len({getattr(past.config, name) for past in runs()}) > 1]


def _pinned_keys() -> list[str]:
    return cast(list[str], st.session_state.get(_PINNED, []))
