"""The runs of this tab as small pictures: open one again, or pin two to compare them."""

import base64
from collections.abc import Callable
from typing import Final

import streamlit as st

from app.state import compare, history
from app.state.history import PastRun
from app.widgets.glossary import plain
from app.widgets.setting_widgets import shown
from eab.board.still import shorten
from eab.config import SETTINGS
from eab.token_text import visible

_PROMPT: Final = 60  # characters
COMPARE = "../pages/compare.py"


def draw(current: str, on_open: Callable[[PastRun], None]) -> None:
    """Draw the runs of this tab, if there are at least two."""
    past = history.runs()
    if len(past) < 2:
        return
    pinned = history.pinned()
    st.subheader("Runs in this tab")
    names = history.differing_settings()
    with st.container(horizontal=True, key="past_runs"):
        for run in past:
            with st.container(border=True, width=190, key=f"past-{run.key}"):
                _card(run, names, run.key == current, run in pinned, on_open)
    if st.button(
        "Compare the pinned runs",
        disabled=len(pinned) < history.MAX_PINNED,
        help="Pin two runs first." if len(pinned) < history.MAX_PINNED else None,
        key="compare_pinned",
    ):
        compare.choose_pinned()
        st.switch_page(COMPARE)


def _card(
    run: PastRun,
    names: list[str],
    is_current: bool,
    is_pinned: bool,
    on_open: Callable[[PastRun], None],
) -> None:
    picture = base64.b64encode(run.picture.encode()).decode()  # Streamlit removes bare SVG
    st.html(f'<img src="data:image/svg+xml;base64,{picture}" alt="">')
    st.caption(plain(shorten(" ".join(visible(run.prompt).split()), _PROMPT)))
    settings = [
        f"{SETTINGS[name].label.lower()} {shown(name, getattr(run.config, name))}" for name in names
    ]
    st.caption(plain(", ".join(settings)))
    with st.container(horizontal=True):
        st.button(
            "Shown" if is_current else "Open",
            on_click=on_open,
            args=(run,),
            disabled=is_current,
            key=f"open-{run.key}",
        )
        st.button(
            "Unpin" if is_pinned else "Pin",
            on_click=history.toggle_pin,
            args=(run.key,),
            icon=":material/keep:",
            type="primary" if is_pinned else "secondary",
            key=f"pin-{run.key}",
        )
