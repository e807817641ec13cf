"""The parts of a page that are redrawn at intervals while a task is active."""

import itertools
from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app.server.live_run import LiveTask
from app.state import status
from app.state.process import worker

POLL_SECONDS: Final = 0.25  # minimum between two polls of a page
POLL_COST: Final = 0.05  # seconds between any two polls of the server; one takes about 10 ms
_DRAWINGS: Final = itertools.count()
_FRAGMENTS: Final = "polling_fragments"

_Polling: TypeAlias = tuple[DeltaGenerator, Callable[[], None], float]


def interval(at_least: float) -> float:
    """Seconds between polls; longer with more active tasks, to keep the server responsive."""
    return max(at_least, POLL_COST * worker().active)


def fragment(draw: Callable[[], None], every: float | None) -> None:
    """Draw a part of the page here that is redrawn without the rest of the page.

    A poll that arrives just after a page was drawn can make Streamlit drop what was not sent yet
    (see its AppSession.request_rerun), and the page would stay half drawn. Therefore a polling
    fragment gets a new name on each drawing, because polls of old names do nothing. It is drawn
    after everything else (`draw_fragments`), because the browser starts to poll when it receives
    it. A click in it that was sent before the browser had the new page is lost. `every` is in
    seconds; with None, the part is redrawn only when a widget in it is used.
    """
    container = st.container()
    if every is None:
        with container:
            st.fragment(draw)()
    else:
        st.session_state.setdefault(_FRAGMENTS, []).append((container, draw, every))


def draw_fragments() -> None:
    """Draw the polling fragments; must be the last call of every page."""
    for container, draw, every in forget_fragments():
        draw.__qualname__ = f"{draw.__qualname__} {next(_DRAWINGS)}"
        with container:
            st.fragment(draw, run_every=every)()


def forget_fragments() -> list[_Polling]:
    """Return and forget fragments not drawn yet; an earlier drawing may have been interrupted."""
    return cast(list[_Polling], st.session_state.pop(_FRAGMENTS, []))


def watch(
    find: Callable[[], LiveTask[Any] | None],
    active: bool,
    is_outdated: Callable[[], bool] = lambda: False,
) -> None:
    """Show the progress of the task that `find` returns, and redraw the page when it ends.

    `active` says whether the page is drawn as if the task were active. Read it once, before
    anything is drawn, so that a task that ends meanwhile is noticed here.
    """

    def show_progress() -> None:
        live = find()
        if live is not None:
            live.mark_watched()
            share, words = status.progress(live)
            if live.active:
                st.progress(share, words)
            else:
                st.caption(words)
        if active and (live is None or not live.active or is_outdated()):
            st.rerun()

    fragment(show_progress, interval(POLL_SECONDS) if active else None)
