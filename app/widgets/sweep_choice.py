"""The sweep that the Tune page shows: one of this tab, a saved one, or a downloaded file."""

from typing import Final

import streamlit as st

from app.server.store import SWEEPS, default_sweep_store
from app.state import status, tuning
from app.state.slot import Entry
from app.widgets import sweep_editor
from app.widgets.glossary import plain
from app.widgets.open_menu import Gallery, upload
from eab import token_text
from eab.labs.tuning.report import TuningReport

_OPEN: Final = "open_sweep"  # key of the popover
_SHOWN: Final = "tune_shown"
MAX_UPLOAD_MIB: Final = 16


def draw(displayed: Entry[TuningReport]) -> None:
    """Draw the sweep's name, how much of it has run, and a button for the list, which is drawn only
    while it is open.
    """
    report = displayed.state
    part = f": {report.made}" if report.missing else ""
    name = plain(token_text.visible(tuning.displayed_name()))
    with st.container(horizontal=True, vertical_alignment="center", width="content"):
        st.caption(f"**{name}{part}**", width="content")
        popover = st.popover("Open", icon=":material/folder_open:", on_change="rerun", key=_OPEN)
    if not popover.open:
        return
    with popover:
        own, saved, file = st.tabs(["This tab", "Saved sweeps", "Sweep file"])
        with own:
            _of_this_tab(report)
        with saved:
            _SAVED.draw(report if report.cells else None, tuning.displayed_name())
        with file:
            upload("Open a sweep file", "gz", "tune_upload", tuning.open_file, MAX_UPLOAD_MIB)


def _of_this_tab(report: TuningReport) -> None:
    st.session_state[_SHOWN] = tuning.displayed_name()
    st.radio("Sweeps of this tab", tuning.names(), key=_SHOWN, on_change=_show)
    if report.plan is not None:
        st.button(
            "Use its settings",
            on_click=sweep_editor.fill_from,
            args=(report.plan,),
            icon=":material/tune:",
            key="tune_use_plan",
            help="Sets the controls of this page to the settings and prompts of this sweep.",
        )


def _show() -> None:
    tuning.show(st.session_state[_SHOWN])


@status.errors_as_message()
def _open_saved() -> None:
    sweep_id = st.session_state[_SAVED.chosen]
    if sweep_id is not None:
        tuning.open_saved(sweep_id)


_SAVED: Final[Gallery[TuningReport]] = Gallery(SWEEPS, default_sweep_store, _open_saved)
