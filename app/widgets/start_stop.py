"""The buttons that start and stop a long job, and the messages about its problems."""

from collections.abc import Callable
from typing import Any, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app.state import messages
from app.state.slot import Entry
from app.widgets.markdown import plain


def page_controls() -> DeltaGenerator:
    """A place for the controls above the answer of a page. A phone shows them only on request."""
    place = st.container(key="page_controls")
    place.toggle("Show the controls", key="show_controls")
    return place


def start_button(
    label: str,
    key: str,
    missing: str,
    help: str = "",
    active: bool = False,
    on_start: Callable[..., None] | None = None,
    args: tuple[Any, ...] = (),
    type: Literal["primary", "secondary"] = "primary",
) -> bool:
    """Draw Start, disabled while active or without the model; return whether it was pressed."""
    return st.button(
        label,
        on_click=on_start,
        args=args,
        type=type,
        icon=":material/play_arrow:",
        key=key,
        disabled=active or bool(missing),
        help=missing or help or None,
        width="stretch",
    )


def stop_button(
    key: str, on_stop: Callable[[], None], active: bool = True, label: str = "Stop"
) -> None:
    """Draw Stop, disabled while nothing is active."""
    st.button(label, on_click=on_stop, disabled=not active, key=key, width="stretch")


def show_problems(*shown: Entry[Any]) -> None:
    """Draw the problems of the last action and of these entries."""
    for problem in messages.problems(*shown):
        st.error(plain(problem))
