"""The board as a Streamlit component: one registration, and what each tab has been sent."""

from collections.abc import Callable
from typing import Any, Final, Literal

import streamlit as st

from eab.figures import board_code
from eab.figures.board import Feed
from eab.run import Run

_mount: Final[Callable[..., object]] = st.components.v2.component(
    "eab_board", css=board_code.stylesheet(), js=board_code.javascript("streamlit")
)


def message(run: Run, key: str, mode: Literal["live", "replay"], autoplay: bool) -> dict[str, Any]:
    """What to tell this tab's board about the run; see eab.figures.board.Feed."""
    return _feed().message(run, key, mode, autoplay)


def mount(message: dict[str, Any], key: str = "board") -> None:
    """Put a board on the page with this message."""
    _mount(key=key, data=message, on_resync_change=_feed().resync)


def _feed() -> Feed:
    feed: Feed = st.session_state.setdefault("board_feed", Feed())
    return feed
