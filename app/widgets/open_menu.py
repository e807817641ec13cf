"""What Explore can open: examples, saved runs, run files, and the runs of this tab."""

from collections.abc import Callable, Sequence
from typing import Final

import streamlit as st

from app.server.store import RUNS, default_store
from app.state import history, status, tab
from app.widgets import controls
from app.widgets.glossary import plain
from app.widgets.saved import Gallery, upload
from eab.errors import EabError
from eab.events import Event
from eab.lessons import bundled_runs

_OPEN: Final = "open_run"  # key of the popover
_RECORDING: Final = "recording"  # key of the list of examples in it


def draw(active: bool) -> None:
    """Draw a button for the list, which is drawn only while it is open."""
    popover = st.popover("Open", icon=":material/folder_open:", on_change="rerun", key=_OPEN)
    if popover.open:
        with popover:
            _draw_list(active)


def _draw_list(active: bool) -> None:
    examples, saved, file = st.tabs(["Examples", "Saved runs", "Run file"])
    with examples:
        recordings = bundled_runs.recordings()
        st.radio(
            "Examples",
            recordings,
            index=None,
            format_func=lambda recording: recording.title,
            captions=[f"*{plain(run.teaches)}.* {plain(run.description)}" for run in recordings],
            key=_RECORDING,
            on_change=_open_recording,
            label_visibility="collapsed",
        )
    with saved:
        displayed = tab.displayed()
        started = None if active else displayed.started
        _SAVED.draw(
            displayed.details.events if started else None, started.prompt if started else ""
        )
    with file:
        upload("Open a run file", "eab", "upload", _open_file)


def open_again(past: history.PastRun) -> None:
    """Open a run of this tab again."""
    _open(lambda: history.open_again(past))


def clear_choices(keep: str = "") -> None:
    """Let the last choices be made again, except in the list with this key."""
    for choice in {_RECORDING, _SAVED.chosen} - {keep}:
        st.session_state[choice] = None


def fill_in_first() -> None:
    """Set the widgets of a new tab; a link's settings take precedence over its run's."""
    current, link = tab.current(), tab.link()
    asked = current.asked
    config, model = link.config or asked.config, link.model or current.model
    if link.prompt is None:
        controls.fill_from(asked.prompt, config, model, asked.messages)
    else:
        controls.fill_from(link.prompt, config, model, link.messages)


def _open_recording() -> None:
    recording = st.session_state[_RECORDING]
    if recording is not None:
        _open(lambda: tab.open_recording(recording), keep=_RECORDING)


def _open_saved() -> None:
    run_id = st.session_state[_SAVED.chosen]
    if run_id is not None:
        _open(lambda: tab.open_saved(run_id), keep=_SAVED.chosen)


def _open_file(data: bytes, name: str) -> None:
    _open(lambda: tab.open_file(data, name))


def _open(act: Callable[[], None], keep: str = "") -> None:
    """Open a run and set the widgets to it, or say why not; keep the choice in the list `keep`."""
    status.clear()
    try:
        act()
    except EabError as error:
        status.notify(str(error))
        return
    clear_choices(keep)
    if keep != _SAVED.chosen:  # a saved run can be renamed or deleted next
        st.session_state[_OPEN] = False
    current = tab.current()
    asked = current.asked
    controls.fill_from(asked.prompt, asked.config, current.model, asked.messages)


_SAVED: Final[Gallery[Sequence[Event]]] = Gallery(
    RUNS, default_store, _open_saved, tab.retitle_saved
)
