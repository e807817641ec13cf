"""The board as a Streamlit component: one registration, and what each tab has been sent."""

from collections.abc import Callable
from typing import Any, Final, Literal

import streamlit as st

from app.state.tab import TokenAddress
from eab.board import bundle
from eab.board.messages import Feed
from eab.run import Run

_mount: Final[Callable[..., object]] = st.components.v2.component(
    "eab_board", css=bundle.stylesheet(), js=bundle.javascript("streamlit")
)

_KEY: Final = "board"


def message(
    run: Run | None,
    key: str,
    mode: Literal["live", "replay"],
    autoplay: bool,
    cursor: int | None = None,
) -> dict[str, Any]:
    """What to tell this tab's board about the run; see eab.board.messages.Feed. cursor: the step to
    begin at.
    """
    return _feed().message(run, key, mode, autoplay, cursor)


def mount(
    message: dict[str, Any],
    on_grow: Callable[[TokenAddress], None] | None = None,
    on_reread: Callable[[str, float], None] | None = None,
    key: str = _KEY,
) -> None:
    """Put a board on the page with this message.

    on_grow: offer to grow from a token, and call this when asked. on_reread: let the threshold be
    dragged, and call this with the run's key and the threshold.
    """

    def dragged() -> None:
        wish = st.session_state[key]["reread"]
        if on_reread is not None:
            on_reread(wish["run"], wish["threshold"])

    offers = {"grows": on_grow is not None, "rereads": on_reread is not None, "rests": key == _KEY}
    _mount(
        key=key,
        data=[
            message | offers
        ],  # in a list: Streamlit looks for tables in a dict, and imports pandas for that
        default={"cursor": None},
        on_resync_change=_feed().resync,
        on_cursor_change=_nothing,
        on_grow_change=lambda: (
            on_grow(TokenAddress(**st.session_state[key]["grow"])) if on_grow else None
        ),
        on_reread_change=dragged,
    )


def cursor(key: str) -> int | None:
    """The step at which the cursor of this tab rests (half a second or longer), if its board shows
    the run `key`.
    """
    rested = st.session_state.get(_KEY, {}).get("cursor")
    return int(rested["step"]) if rested and rested["run"] == key else None


def _nothing() -> None:
    """A cursor at rest is only noted: Streamlit keeps it, and runs the fragment again."""


def _feed() -> Feed:
    feed: Feed = st.session_state.setdefault("board_feed", Feed())
    return feed
