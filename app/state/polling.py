"""The parts of a page that are redrawn at intervals while a task is active.

Another thread can ask for a fragment at once: thirty followers that poll every 0.2 s take most of a
core even while nothing happens. That takes a few milliseconds per follower and change. Streamlit
has no call for this, so a message like a browser's request for the fragment is given to the
session, on the thread where such messages arrive. A slow poll of the fragment makes up for lost
messages.
"""

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

import streamlit as st
from streamlit import runtime
from streamlit.delta_generator import DeltaGenerator
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.scriptrunner_utils.script_run_context import ThreadState

from app.server.live_run import LiveTask
from app.state import status
from app.state.status import worker

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


_RETRY: Final = 0.02  # seconds


@dataclass
class Push:
    """Asks for one fragment of one tab; calls before it is drawn count as one."""

    session: str
    fragment: str
    page: str
    query: str
    _waiting: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> None:
        tab = runtime.get_instance().get_app_session(self.session)
        if tab is None or self._waiting.is_set():
            return
        self._waiting.set()
        tab._call_soon_on_event_loop(lambda: self._ask(tab))

    def _ask(self, session: AppSession) -> None:
        """Wait while the tab draws, however long: a request between the end of a drawing and the
        moment when the session has its last messages would drop them, and the page would stay half
        drawn. A closed session stops drawing, and then ignores the request.
        """
        if session._scriptrunner is not None:
            session._event_loop.call_later(_RETRY, self._ask, session)
            return
        self._waiting.clear()
        session.request_rerun(
            ClientState(
                query_string=self.query,
                page_script_hash=self.page,
                fragment_id=self.fragment,
                is_auto_rerun=True,
            )
        )


def of_this_fragment() -> Push:
    """A push for the fragment that is being drawn."""
    context, fragment = get_script_run_ctx(), ThreadState.get().fragment_id
    assert context is not None
    assert fragment is not None
    return Push(context.session_id, fragment, context.page_script_hash, context.query_string)


def session_id() -> str:
    """The session id of this tab."""
    context = get_script_run_ctx()
    assert context is not None
    return context.session_id


def connected(session: str) -> bool:
    """Whether the browser of this session is connected."""
    return runtime.get_instance().is_active_session(session)
