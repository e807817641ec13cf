"""The board as a Streamlit component: registered once, with one message feed per browser tab.

It protects the values that the page gives to widgets from a browser that does not know them yet.
With every message, a browser sends the values of all its widgets. After a callback has set new
values, a slow browser sends the old ones for a while, and Streamlit would take them for a choice.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import streamlit as st

from app.server import http, links
from app.server.links import Link
from eab.board.messages import Feed
from eab.config import AllocationStep
from eab.run import RunState

_FILES: Final = http.component()
_mount: Final[Callable[..., object]] = st.components.v2.component(
    "eab_board", js=_FILES["js"], css=_FILES.get("css")
)

_KEY: Final = "board"


@dataclass(frozen=True)
class Offers:
    """What the user can ask of the page on the board; None or empty: not offered."""

    # called with the run's key, a path's id, the index of a token in it, and the candidate to use
    # instead of the token; -1 keeps the token
    grow: Callable[[str, int, int, int], None] | None = None
    # called with the run's key to continue all texts that were cut, by `more_tokens`
    go_on: Callable[[str], None] | None = None
    more_tokens: int = 0
    # called with the run's key, a threshold in nats and a growth step (None: as recorded), after
    # the threshold line was dragged or another growth step chosen
    what_if: Callable[[str, float | None, AllocationStep | None], None] | None = None
    # called with the run's key and the threshold in nats at which to run the model
    run_at: Callable[[str, float], None] | None = None
    # called with the run's key and the rules that label its texts from now on
    label: Callable[[str, list[dict[str, Any]]], None] | None = None
    # called with the run's key, and the share to which it is explored, a text to read, or whether
    # to make it with more seeds
    extend: Callable[[str, float, str, bool], None] | None = None
    repeat: bool = False  # whether it can be made with more seeds
    link: Link | None = None  # a link to the run, without the cursor
    # switches between a grown run in the tree of its source and the grown run alone
    graft: Callable[[], None] | None = None
    grafted: bool = False  # whether the tree of the source is shown
    # whether the tour starts by itself on the first visit; None if there is no tour
    tour: bool | None = None

    def as_message(self) -> dict[str, Any]:
        """JSON values; see Offers in eab/board/static/types.d.ts."""
        link = self.link
        return {
            "grow": self.grow is not None,
            "go_on": self.more_tokens,
            "what_if": self.what_if is not None,
            "run_at": self.run_at is not None,
            "tour": self.tour,
            "label": self.label is not None,
            "extend": self.extend is not None,
            "repeat": self.repeat,
            "graft": self.grafted if self.graft is not None else None,
            "link": None
            if link is None
            else {"query": links.to_query(link), "words": links.what_it_opens(link)},
        }


def message(
    run: RunState | None,
    key: str,
    mode: Literal["live", "replay"],
    autoplay: bool,
    cursor: int | None = None,
) -> dict[str, Any]:
    """The next message for this tab's board; see `eab.board.messages.Feed.message`."""
    return _feed().message(run, key, mode, autoplay, cursor)


NOTHING: Final = Offers()
# What the browser sends with each request, in the order of the arguments of the offer
_ASKED: Final[dict[str, tuple[str, ...]]] = {
    "grow": ("run", "path", "token", "candidate"),
    "go_on": ("run",),
    "what_if": ("run", "threshold", "r"),
    "run_at": ("run", "threshold"),
    "label": ("run", "rules"),
    "extend": ("run", "until", "text", "repeat"),
    "graft": (),
}


def mount(message: dict[str, Any], offers: Offers = NOTHING, key: str = _KEY) -> None:
    """Mount a board with this message on the page."""

    def called(name: str) -> Callable[[], None]:
        """What to do when the browser asks for this."""

        def on_change() -> None:
            call, asked = getattr(offers, name), st.session_state[key][name]
            if call is not None:
                call(*(asked[field] for field in _ASKED[name]))

        return on_change

    _mount(
        key=key,
        # As bytes, because Streamlit would encode a value twice, and more slowly.
        data=msgspec.json.encode(message | {"offers": offers.as_message()}),
        on_missed_change=lambda: _feed().resend(st.session_state[key]["missed"]["since"]),
        **{f"on_{name}_change": called(name) for name in _ASKED},
    )


def _feed() -> Feed:
    feed: Feed = st.session_state.setdefault("board_feed", Feed())
    return feed


_CHANGE: Final = "set_by_page"  # the last change by the page
_SECONDS: Final = 30.0  # how long a change may take to reach a slow browser
_ONE_CALLBACK: Final = 1.0  # second; changes within it count as one


@dataclass(frozen=True, slots=True)
class _Change:
    at: float  # monotonic seconds
    before: dict[str, Any]
    after: dict[str, Any]

    def is_younger_than(self, seconds: float) -> bool:
        return time.monotonic() < self.at + seconds


def set_widgets(values: dict[str, Any]) -> None:
    """Set these widgets, by their session keys; for callbacks."""
    held = {key: st.session_state.get(key) for key in values}
    before = {key: old for key, old in held.items() if old is not None and old != values[key]}
    after = {key: values[key] for key in before}
    last: _Change | None = st.session_state.get(_CHANGE)
    if last is not None and last.is_younger_than(_ONE_CALLBACK):
        before, after = before | last.before, last.after | after
    st.session_state[_CHANGE] = _Change(time.monotonic(), before, after)
    st.session_state.update(values)


def set_again() -> None:
    """Undo a late message, which has the old values of all widgets; call it before the widgets are
    drawn. A single changed widget may be the user's choice.
    """
    last: _Change | None = st.session_state.get(_CHANGE)
    if last is None or len(last.before) < 2 or not last.is_younger_than(_SECONDS):
        return
    if all(st.session_state.get(key) == old for key, old in last.before.items()):
        st.session_state.update(last.after)
