"""What the pages of a tab share of the server: its worker, who the tab is, how far a task is, and
the problems that are shown to the user of this tab.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import streamlit as st

from app.server import model_cache, rules, unfinished
from app.server.admission import QueuePosition
from app.server.live_run import LiveTask
from app.server.model_cache import ModelCache, ModelDownload
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
