"""The line under the header of Explore: the progress of a run, or the one message that matters,
with what could be changed. Also the buttons that start and stop a long job.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app.server import rules
from app.server.live_run import LiveRun
from app.state import compare, status, tab, what_if
from app.state.slot import Entry
from app.widgets import controls, model_choice
from app.widgets.glossary import plain
from eab.formatting import apart
from eab.run import RunState

# Minimum time between two polls (s), by the status of the run.
POLL_SECONDS: Final = {"loading": 0.5, "waiting": 1.0, "running": 0.25}
QUESTIONS: Final = ("Why do cats purr?", "Name a pet robot.", "Tell me a joke.")
EARLY: Final = 1 / 3  # share of the steps; a path limit before it hides much of the tree
DRAWN: Final = "drawn_status"  # the status of the run when the page was drawn
_CHANGED: Final = "changed_in_status_line"  # whether a button here changed the rest of the page


def draw(
    on_suggestion: Callable[[dict[str, Any]], None],
    on_open: Callable[[compare.PastRun], None],
    on_question: Callable[[str], None],
) -> None:
    """Draw the line; while a run is running, the board polls and draws its progress instead."""
    live, drawn = tab.current().live, st.session_state[DRAWN]
    if drawn == "running":
        return
    has_changed = (
        live is not None and live.status != drawn and (live.active or drawn in POLL_SECONDS)
    )
    if st.session_state.pop(_CHANGED, False) or has_changed:
        st.rerun()  # the rest of the page is out of date
    with st.container(horizontal=True, key="status"):
        if live is not None and drawn in POLL_SECONDS:
            draw_progress(live)
        else:
            _draw_message(on_suggestion, on_question)
            _draw_back(on_open)


def draw_progress(live: LiveRun) -> None:
    """Draw the progress of the run."""
    live.mark_watched()
    share, words = status.progress(live)
    own = live.state.run.started.model.memory_words if live.state.run is not None else ""
    own = f"{controls.moved_prompt()} {own}".strip()
    st.progress(share, plain(f"{words}. {own}") if own else words)


def _draw_message(
    on_suggestion: Callable[[dict[str, Any]], None], on_question: Callable[[str], None]
) -> None:
    current = tab.current()
    offered = _offered(current)
    if problems := status.problems(current):
        st.error(plain(" ".join(problems)))
    elif controls.draw_replied_to():
        return
    elif changed := controls.changed_since(current.started):
        st.caption(f"{changed} {current.cut}".rstrip())
        return
    elif current.live is not None:
        why = f" {offered.why}" if offered else ""
        own = f" {current.started.model.memory_words}" if current.started is not None else ""
        st.caption(plain(f"{status.progress(current.live)[1]}.{why}{own}".rstrip()))
    else:
        about = f"{current.details.description} {current.cut}".strip()
        st.caption(f"**{plain(current.details.title)}.** {plain(about)}")
        if model_choice.for_own_prompts():
            with st.container(horizontal=True, key="questions"):
                for question in QUESTIONS:
                    st.button(question, on_click=on_question, args=(question,), key=question)
    if offered is not None:
        st.button(offered.label, on_click=on_suggestion, args=(offered.widgets,), key="suggestion")
    ended = current.run if current.live is not None and not offered else None
    if ended is not None and controls.can_reply_to(ended):
        controls.draw_reply(ended, _redraw_page)


def _draw_back(on_open: Callable[[compare.PastRun], None]) -> None:
    before = compare.named(tab.current().details.grown_from)
    if before is not None:
        st.button(
            "Back",
            on_click=_open,
            args=(before, on_open),
            icon=":material/arrow_back:",
            key="back",
            help="Shows the run from which this one was grown.",
        )


def _open(before: compare.PastRun, on_open: Callable[[compare.PastRun], None]) -> None:
    on_open(before)
    _redraw_page()


def _redraw_page() -> None:
    st.session_state[_CHANGED] = True


def _offered(current: tab.OpenRun) -> "Suggestion | None":
    """The suggestion for a live run that is shown without what-if."""
    if current.live is None or current.run is None or what_if.asked_of(current.key) is not None:
        return None
    return suggestion(current.run)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggested change, offered as a button that runs the prompt with it."""

    why: str  # a sentence
    label: str
    widgets: dict[str, Any]  # values by widget key, without `set_`


def suggestion(run: RunState) -> Suggestion | None:
    """What to change after a run without a fork, with an early path limit, or without enough
    memory; None if nothing needs to change, or the run has not ended.
    """
    if run.ended is None or run.started.imported:
        return None
    config = run.started.config
    if run.ended.reason == "failed":
        return _other("", "max_paths", config.max_paths // 2, "paths") or _other(
            "", "max_new_tokens", config.max_new_tokens // 2, "new tokens"
        )
    if not run.forks():
        return _lower_threshold(run, run.started.threshold_nats)
    first = min((path.limited_steps[0] for path in run.paths if path.limited_steps), default=None)
    more = min(2 * config.max_paths, rules.current().max_paths)
    if first is None or first >= EARLY * len(run.steps) or more <= config.max_paths:
        return None
    return _other(f"Path limit reached at step {first}.", "max_paths", more, "paths")


def _other(why: str, name: str, value: int, unit: str) -> Suggestion | None:
    return Suggestion(why, f"Run with {value} {unit}", {name: value}) if value else None


def _lower_threshold(run: RunState, threshold: float) -> Suggestion | None:
    """Suggest the highest entropy of this run as the threshold (nats), rounded down to a step of
    the slider.
    """
    value = math.floor(run.highest_entropy * 100) / 100
    if not 0 < value < threshold:
        return None
    below, above = apart(run.highest_entropy, threshold)
    return Suggestion(
        f"No fork: the entropy stayed below {above} nats; its highest value was {below}.",
        f"Run at {value:.2f} nats",
        {"threshold_unit": "nats", "threshold_nats": value},
    )


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
    for problem in status.problems(*shown):
        st.error(plain(problem))
