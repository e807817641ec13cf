"""The board as a Streamlit component: registered once, with one message feed per browser tab."""

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
    """The next message for this tab's board; see `eab.board.messages.Feed.message`."""
    return _feed().message(run, key, mode, autoplay, cursor)


def mount(
    message: dict[str, Any],
    on_grow: Callable[[TokenAddress], None] | None = None,
    on_what_if: Callable[[str, float], None] | None = None,
    key: str = _KEY,
) -> None:
    """Put a board on the page with this message.

    Args:
        message: What to show, from `message` or `eab.board.diff.diff_message`.
        on_grow: Called with the token to grow from. None: growing is not offered.
        on_what_if: Called with the run's key and a threshold in nats while the threshold line is
            dragged. None: the line cannot be dragged.
        key: Names the component on the page. Only the board with the default key reports its
            cursor.
    """

    def grow() -> None:
        if on_grow is not None:
            on_grow(TokenAddress(**st.session_state[key]["grow"]))

    def what_if() -> None:
        if on_what_if is not None:
            request = st.session_state[key]["what_if"]
            on_what_if(request["run"], request["threshold"])

    offers = {
        "grow": on_grow is not None,
        "what_if": on_what_if is not None,
        "cursor": key == _KEY,
    }
    _mount(
        key=key,
        # In a list: Streamlit would look for tables in a dict, and import pandas for that.
        data=[message | {"offers": offers}],
        default={"cursor": None},
        on_keyframe_change=_feed().request_keyframe,
        on_cursor_change=_keep_cursor,
        on_grow_change=grow,
        on_what_if_change=what_if,
    )


def cursor(key: str) -> int | None:
    """The step at which the cursor of this tab has been for half a second or longer.

    Args:
        key: The run's key.

    Returns:
        None if the board shows another run, or has not reported yet.
    """
    reported = st.session_state.get(_KEY, {}).get("cursor")
    return int(reported["step"]) if reported and reported["run"] == key else None


def _keep_cursor() -> None:
    """Nothing more to do: Streamlit keeps the value, and runs the fragment again."""


def _feed() -> Feed:
    feed: Feed = st.session_state.setdefault("board_feed", Feed())
    return feed
