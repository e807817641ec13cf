"""How another thread asks a browser tab to redraw one fragment of its page.

Thirty followers that poll every 0.2 s take most of a core even while nothing happens. Asking for a
fragment takes a few milliseconds per follower and change. Streamlit has no call for this, so a
message like a browser's request for the fragment is given to the session, on
the thread where such messages arrive. A slow poll of the fragment makes up for lost messages.
"""

import threading
from dataclasses import dataclass, field
from typing import Final

from streamlit import runtime
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.scriptrunner_utils.script_run_context import ThreadState

_RETRY: Final = 0.02  # seconds
_TRIES: Final = 50


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
        tab._call_soon_on_event_loop(lambda: self._ask(tab, _TRIES))

    def _ask(self, session: AppSession, tries: int) -> None:
        """Wait while the tab draws: a request just after a drawing drops what was not sent yet."""
        if session._scriptrunner is not None and tries:
            session._event_loop.call_later(_RETRY, self._ask, session, tries - 1)
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
