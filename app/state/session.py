"""What the pages of a tab share: the server's worker, who the tab is, how far a task is, the
problems that are shown to its user, and the parts of a page that are redrawn at intervals while a
task is active.

Another thread can ask for a fragment at once: thirty followers that poll every 0.2 s take most of a
core even while nothing happens. That takes a few milliseconds per follower and change. Streamlit
has no call for this, so a message like a browser's request for the fragment is given to the
session, on the thread where such messages arrive. A slow poll of the fragment makes up for lost
messages.

The values that the page gives to widgets are protected from a browser that does not know them yet.
With every message, a browser sends the values of all its widgets. After a callback has set new
values, a slow browser sends the old ones for a while, and Streamlit would take them for a choice.
"""

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import streamlit as st
from streamlit import runtime
from streamlit.delta_generator import DeltaGenerator
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.scriptrunner_utils.script_run_context import ThreadState

from app.server import model_cache, rules, unfinished
from app.server.model_cache import ModelCache, ModelDownload
from app.server.tasks import LiveTask, QueuePosition
from app.server.unfinished import Keeper
from app.server.worker import Worker
from eab import token_text
from eab.engine.models.packaged import SMOLLM2
from eab.errors import EabError
from eab.figures.captions import ENDINGS
from eab.formatting import as_sentence, human_seconds, ordinal

if TYPE_CHECKING:
    from app.state.slot import Entry

_OWNER, CLASS_SCOPE = "owner", "class_scope"


@st.cache_resource(show_spinner=False)
def worker() -> Worker:
    """The worker that all tabs share."""
    allowed = rules.current()
    here = [name for name in model_cache.KEPT if not model_cache.missing(name)]
    offered = [name for name in here if not allowed.models or name in allowed.models]
    models().warm_up(offered)
    made = Worker(models(), rules=allowed)
    if kinds := unfinished.of_this_server():
        Keeper(lambda: made.remembered, kinds)
    return made


@st.cache_resource(show_spinner=False)
def models() -> ModelCache:
    """The loaded models."""
    return ModelCache()


@st.cache_resource(show_spinner=False)
def model_download() -> ModelDownload:
    """The download of the chat model, shared by all tabs."""
    return ModelDownload(SMOLLM2, then=lambda: models().warm_up([SMOLLM2.name]))


def scope() -> str:
    """The scope in which this tab's runs share computed prompts: that of its class, or else its
    owner (see the rule `share_prefixes`).
    """
    return cast(str, st.session_state.get(CLASS_SCOPE, "")) or owner()


def owner() -> str:
    """The visitor, as the rules count them: the random name of this tab, or the network address.
    The run queue is fair between owners.
    """
    allowed, address = rules.current(), st.context.ip_address
    if allowed.visitor == "address" and address:
        return allowed.visitor_at(address)
    return cast(str, st.session_state.setdefault(_OWNER, secrets.token_hex(8)))


def progress(live: LiveTask[Any]) -> tuple[float, str]:
    """The progress of a task, as a share from 0 to 1 and as a text."""
    if (early := _not_running(live)) is not None:
        return early
    with live.lock:
        if not live.active:
            ended = ENDINGS[live.ending[0]]
            made = live.state.made
            when = "before the first result" if made.startswith("0 ") else f"after {made}"
            return 1.0, f"{ended} {when}"
        if live.reading is not None:
            read, of = live.reading
            return read / of, f"Reading the prompt: {read:,} of {of:,} tokens"
        now = live.state.progress
        return min(1.0, now.share), now.words


def _not_running(live: LiveTask[Any]) -> tuple[float, str] | None:
    """Progress of a task that is loading, waiting or failed; None if it is running or has ended.

    Call it without holding the task's lock, because the worker takes the lock of its queue before
    the lock of a task.
    """
    if live.status == "loading":
        return 0.0, "Loading the model ..."
    if (position := worker().position(live)) is not None:
        return 0.0, _queued(position)
    return (1.0, "Run failed") if live.status == "failed" else None


def _queued(position: QueuePosition) -> str:
    seconds = position.seconds
    about = f", about {human_seconds(seconds)}, estimated from earlier runs" if seconds else ""
    place = f"you are {ordinal(position.number)} of {position.total} in line"
    return f"Waiting: {place}{about}. Press Stop to leave the queue."


_MESSAGE: Final = "message"


def notify(message: str) -> None:
    """Show a message on the page until the next action."""
    st.session_state[_MESSAGE] = message


def clear() -> None:
    """Remove the message."""
    notify("")


@contextmanager
def errors_as_message() -> Iterator[None]:
    """Clear the message, and show an EabError raised inside as the new one; also a decorator."""
    clear()
    try:
        yield
    except EabError as error:
        notify(str(error))


def message() -> str:
    """The message on the page; empty if there is none."""
    return cast(str, st.session_state.get(_MESSAGE, ""))


def problems(*shown: "Entry[Any]") -> list[str]:
    """The problems of the last action and of the page, with control characters made visible."""
    ends = (entry.state.ended for entry in shown)
    tasks = [entry.live for entry in shown if entry.live is not None]
    failures = [task.message for task in tasks if task.status == "failed"]
    failures += [ended.message for ended in ends if ended is not None]
    others = [task.message for task in tasks if task.status != "failed"]  # the run is complete
    sentences = (message(), *(f"Run failed: {why}" for why in failures if why), *others)
    return [as_sentence(token_text.visible(problem)) for problem in sentences if problem]


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
            share, words = progress(live)
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


KEPT: Final[Any] = {"persist_state": "session"}  # keeps a value while its widget is not drawn
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
