"""Explore: run, watch, inspect. The board is one component; the engine runs in its own thread."""

from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal

import streamlit as st

from app.server import rules
from app.server.links import Link
from app.state import class_of_tab, session, tab, what_if
from app.state import compare as past_runs
from app.state.slot import note_in_url
from app.state.tab import OpenRun
from app.widgets import board, controls, model_choice, open_menu
from app.widgets.elements import plain
from eab.board.messages import graft_message, greedy_message
from eab.config import AllocationStep, BranchingConfig

# Minimum time between two polls (s), by the status of the run.
POLL_SECONDS: Final = {"loading": 0.5, "waiting": 1.0, "running": 0.25}
DRAWN = "drawn_status"  # the status of the run when the page was drawn
CHANGED = "changed_in_status"  # whether a button there changed the rest of the page
GRAFTED = "grafted"  # whether a grown run is shown in the tree that it was grown from
NOTIFIED = "notified_in_fragment"  # whether the rest of the page must show what a callback did
SENT_TO_ITS_END = "sent_to_its_end"  # the key of the run whose last step the board already has
BRAND = """
<div class="eab-brand">
  <h1>EAB Explorer</h1>
  <p>Watch a language model write. Where it hesitates, the text branches.</p>
</div>
"""


def own_prompt() -> None:
    """Leave the model and the settings of an example if the visitor has typed another prompt."""
    shown = tab.displayed()  # after a run that failed immediately, the example is still displayed
    if shown.live is None and shown.started is not None:
        controls.leave_example(shown.started)


@session.errors_as_message()
def run() -> None:
    controls.ensure_defaults()
    own_prompt()
    config = BranchingConfig.from_settings(controls.settings())
    chat = controls.messages()
    asked = (model_choice.name(), controls.prompt(), chat, config)
    what_if.leave_probe_to_run(what_if.probe_of(*asked))
    tab.start(controls.prompt(), config, model_choice.name(), chat)
    open_menu.clear_choices()
    controls.keep_messages(chat)


def ask(question: str) -> None:
    """Run one of the example questions, as if the visitor had typed it."""
    controls.set_prompt(question)
    run()
    st.session_state[NOTIFIED] = bool(session.message())


def grow(key: str, path: int, token: int, candidate: int) -> None:
    with session.errors_as_message():
        config = BranchingConfig.from_settings(controls.settings())
        tab.grow(key, path, token, candidate, config, model_choice.name())
        open_menu.clear_choices()
    st.session_state[NOTIFIED] = bool(session.message())


def go_on(key: str) -> None:
    """Continue all texts of the displayed run that were cut."""
    with session.errors_as_message():
        tab.go_on(key)
        asked = tab.current().asked
        controls.fill_from(asked.prompt, asked.config, tab.current().model, asked.messages)
        open_menu.clear_choices()
    st.session_state[NOTIFIED] = bool(session.message())


def more_tokens(shown: OpenRun) -> int:
    """By how many tokens this server lets the texts that were cut go on; 0 if there are none."""
    more = shown.asked.config.max_new_tokens
    fits = 2 * more <= rules.current().max_new_tokens
    return more if fits and has_model(shown) and shown.run is not None and shown.run.was_cut else 0


def has_model(shown: OpenRun) -> bool:
    """Whether a model made the run here, so that it can be asked for more."""
    return shown.started is None or not shown.started.imported


def label(key: str, rules: list[dict[str, Any]]) -> None:
    """Label texts of the displayed run."""
    with session.errors_as_message():
        tab.label(key, rules)
    st.session_state[NOTIFIED] = True  # draw the whole page, which shows a class the labels


def extend(key: str, until: float, text: str, repeat: bool) -> None:
    """Explore the displayed run, ask about a text, or make it with more seeds."""
    with session.errors_as_message():
        tab.extend(key, until, text, repeat)
    st.session_state[NOTIFIED] = bool(session.message())


def turn_graft() -> None:
    """Switch between a grown run in the tree of its source and the grown run alone."""
    st.session_state[GRAFTED] = not st.session_state[GRAFTED]


def recompute(
    displayed: OpenRun, key: str, threshold: float | None, r: AllocationStep | None
) -> None:
    """Show the displayed run at another threshold (nats) or growth step."""
    what_if.ask(displayed, key, threshold, r)
    st.session_state[NOTIFIED] = class_of_tab.membership() is not None  # to show it to the class


def run_at(key: str, threshold: float) -> None:
    """Run the displayed prompt again at another threshold (nats)."""
    shown = tab.displayed()
    if key == shown.key:
        asked, nats = shown.asked, round(threshold, 2)
        at = replace(asked.config, entropy_threshold=nats, threshold_unit="nats")
        controls.fill_from(asked.prompt, at, shown.model, asked.messages)
        run()
        st.session_state[NOTIFIED] = bool(session.message())


def apply_suggestion(widgets: dict[str, Any]) -> None:
    controls.apply(widgets)
    run()


def draw_status() -> None:
    """Draw the line under the header: the progress of a run, or the one message that matters, with
    what could be changed. While a run is running, the board polls and draws its progress instead.
    """
    live, drawn = tab.current().live, st.session_state[DRAWN]
    if drawn == "running":
        return
    has_changed = (
        live is not None and live.status != drawn and (live.active or drawn in POLL_SECONDS)
    )
    if st.session_state.pop(CHANGED, False) or has_changed:
        st.rerun()  # the rest of the page is out of date
    with st.container(horizontal=True, key="status"):
        if live is not None and drawn in POLL_SECONDS:
            controls.draw_progress(live)
        else:
            draw_message()
            draw_back()


def draw_message() -> None:
    """Draw the one message that matters."""
    current, member = tab.current(), class_of_tab.membership()
    offered = offered_change(current)
    follows = member is not None and member.following  # whom a run would lead away from the class
    if problems := session.problems(current):
        st.error(plain(" ".join(problems)))
    elif controls.draw_replied_to():
        return
    elif not follows and (changed := controls.changed_since(current.started)):
        st.caption(f"{changed} {current.cut}".rstrip())
        return
    elif current.live is not None:
        why = f" {offered.why}" if offered else ""
        own = f" {current.started.model.memory_words}" if current.started is not None else ""
        st.caption(plain(f"{session.progress(current.live)[1]}.{why}{own}".rstrip()))
    else:
        about = f"{current.details.description} {current.cut}".strip()
        st.caption(f"**{plain(current.details.title)}.** {plain(about)}")
        if not follows and model_choice.for_own_prompts():
            with st.container(horizontal=True, key="questions"):
                for question in controls.QUESTIONS:
                    st.button(question, on_click=ask, args=(question,), key=question)
    if offered is not None:
        st.button(
            offered.label, on_click=apply_suggestion, args=(offered.widgets,), key="suggestion"
        )
    ended = current.run if current.live is not None and not offered else None
    if ended is not None and controls.can_reply_to(ended):
        controls.draw_reply(ended, redraw_page)


def draw_back() -> None:
    before = past_runs.named(tab.current().details.grown_from)
    if before is not None:
        st.button(
            "Back",
            on_click=open_source,
            args=(before,),
            icon=":material/arrow_back:",
            key="back",
            help="Shows the run from which this one was grown.",
        )


def open_source(before: past_runs.PastRun) -> None:
    open_menu.open_again(before)
    redraw_page()


def redraw_page() -> None:
    st.session_state[CHANGED] = True


def offered_change(current: OpenRun) -> what_if.Suggestion | None:
    """The suggestion for a live run that is shown without what-if."""
    if current.live is None or current.run is None or what_if.asked_of(current.key) is not None:
        return None
    return what_if.suggestion(current.run)


def draw_board() -> None:
    """Draw the board and, below it, the results of a run that no longer changes.

    The board keeps its place on the page, and with it its state in the browser. It is sent before
    the widgets around it, because the browser loads a script for each kind of widget.
    """
    if st.session_state.pop(NOTIFIED, False):
        st.rerun()  # the page shows the messages; this fragment does not
    live, displayed = tab.current().live, tab.displayed()
    active = live is not None and live.active
    running = live if st.session_state[DRAWN] == "running" else None  # when the page was drawn
    is_sent = st.session_state.get(SENT_TO_ITS_END) == displayed.key
    if running is not None and running.status != "running" and (active or is_sent):
        st.rerun()  # another run was started, or this one has ended
    drawn = mount_board(displayed, active)
    if running is not None:
        with st.container(key="progress"):
            controls.draw_progress(running)
        # A rerun now would drop what the board was just sent; the next poll redraws the page.
        st.session_state[SENT_TO_ITS_END] = "" if active else displayed.key
    elif active and st.session_state[DRAWN] not in POLL_SECONDS:
        st.rerun()  # `grow` started this run; the rest of the page shows the previous one
    elif not active and drawn.run is not None:
        with drawn.locked, st.container(key="below_board"):
            board.show_results(drawn, drawn.run)


def mount_board(displayed: OpenRun, active: bool) -> OpenRun:
    """Send the board its message; return the run that it shows (in a what-if, a recomputed one)."""
    current = tab.current()
    if active and current.live is not None and current.run is None and not current.details.source:
        with current.locked:
            request, probed = current.live.request, list(current.state.probed)
        steps = request.config.max_new_tokens
        board.mount(greedy_message(current.key, request.prompt, probed, steps))
        return displayed
    with displayed.locked:
        view = None if active else what_if.view_of(displayed)
        drawn = displayed if view is None else view.run
        source = displayed.details.source if view is None else None
        grafted = source is not None and st.session_state.setdefault(GRAFTED, True)
        message = message_of(displayed, grafted) | ({} if view is None else view.message)
    asks = not active and not grafted and what_if.possible(displayed)
    is_own = not grafted
    board.mount(
        message,
        board.Offers(
            grow=grow if is_own and has_model(displayed) else None,
            go_on=go_on,
            more_tokens=more_tokens(displayed) if not active else 0,
            what_if=partial(recompute, displayed) if asks else None,
            run_at=run_at if asks else None,
            label=label if is_own and tab.can_label() else None,
            extend=extend if is_own and tab.can_extend() else None,
            repeat=is_own and tab.can_repeat(),
            link=tab.link_to(displayed),
            graft=turn_graft if source is not None else None,
            grafted=grafted,
            tour=class_of_tab.membership() is None and tab.link() == Link(),
        ),
    )
    return drawn


def message_of(drawn: OpenRun, grafted: bool) -> dict[str, Any]:
    """The board's message: the run, or the run in the tree that it was grown from."""
    source, run, details = drawn.details.source, drawn.run, drawn.details
    if grafted and source is not None and run is not None:
        return graft_message(source, run, f"graft {drawn.key}")
    live = drawn.live is not None and drawn.live.status != "failed"
    mode: Literal["live", "replay"] = "live" if live else "replay"
    return board.message(run, drawn.key, mode, details.autoplay, details.cursor)


def draw_name_and_open() -> None:
    """Draw what precedes the prompt: the name of the app, and the menu of runs to open."""
    st.html(BRAND)
    open_menu.draw(active)


current, displayed = tab.current(), tab.displayed()
note_in_url(current.details.link_ids if current.live is not None else {})
if "prompt" not in st.session_state:
    controls.ensure_defaults()
    open_menu.fill_in_first()
controls.ensure_defaults()
now = current.live.status if current.live is not None else ""
active = now in POLL_SECONDS
st.session_state[DRAWN] = now

with st.container(key="header"):
    controls.run_bar(run, tab.stop, active, draw_name_and_open, on_prompt=own_prompt)
every = session.interval(POLL_SECONDS[now]) if active else None
session.fragment(draw_status, None if now == "running" else every)
session.fragment(draw_board, every if now == "running" else None)
with st.sidebar:
    controls.sidebar(on_screen=displayed)
if not active:
    past_runs.note(displayed)
    open_menu.draw_runs(displayed.key, open_menu.open_again)
session.draw_fragments()
