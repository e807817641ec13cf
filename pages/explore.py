"""Explore: run, watch, inspect. The picture is one component; the engine works in a thread of its
own.
"""

from functools import partial
from typing import Any, Literal

import streamlit as st

from app.server import bundled_runs
from app.server.live_run import LiveRun
from app.server.suggestions import suggestions
from app.state import messages, polling, status, tab
from app.widgets import board, controls, results, saved_runs, what_if
from app.widgets.markdown import plain
from eab.config import BranchingConfig
from eab.errors import EabError, RecordError

POLL_SECONDS = {"loading": 0.5, "waiting": 1.0, "running": 0.25}  # at least; by the run's status


def open_recording() -> None:
    if st.session_state.recording is not None:
        tab.show_recording(st.session_state.recording)
        fill_in(but="recording")


def open_saved() -> None:
    if st.session_state[saved_runs.CHOSEN] is None:
        return
    try:
        tab.show_saved(st.session_state[saved_runs.CHOSEN])
    except EabError as error:
        messages.notify(str(error))
    else:
        fill_in(but=saved_runs.CHOSEN)


def open_upload() -> None:
    upload = st.session_state.upload
    if upload is None:
        return
    try:
        tab.show_file(upload.getvalue(), upload.name)
    except RecordError as error:
        messages.notify(str(error))
    else:
        fill_in()


def fill_in(but: str = "") -> None:
    """Set the widgets to the run on the screen, and clear all choices but one, so that they can be
    made again.
    """
    choose_nothing(but)
    shown = tab.shown()
    messages.notify(controls.fill_from(shown.prompt, shown.config, shown.model))


def fill_in_first() -> None:
    """A link's settings go before those of the run that it names."""
    shown, link = tab.shown(), tab.link()
    prompt = shown.prompt if link.prompt is None else link.prompt
    told = controls.fill_from(prompt, link.config or shown.config, link.model or shown.model)
    messages.notify(" ".join(filter(None, (messages.message(), told))))


def choose_nothing(but: str = "") -> None:
    for choice in {"recording", saved_runs.CHOSEN} - {but}:
        st.session_state[choice] = None


def run() -> None:
    messages.clear()
    try:
        config = BranchingConfig.from_settings(controls.settings())
        tab.start(controls.prompt(), config, controls.model_name())
    except EabError as error:
        messages.notify(str(error))
    else:
        choose_nothing()


def grow(place: tab.TokenAddress) -> None:
    messages.clear()
    try:
        config = BranchingConfig.from_settings(controls.settings())
        tab.grow(place, config, controls.model_name())
    except EabError as error:
        messages.notify(str(error))
        st.session_state.told_in_fragment = True
    else:
        choose_nothing()


def mend(widgets: dict[str, Any]) -> None:
    controls.apply(widgets)
    run()


def tell() -> None:
    """Say how far the run is while its board does not grow. Either this polls or `draw`, never
    both.
    """
    live = tab.shown().live
    if live is not None and st.session_state.polled != "running":
        tell_of(live)


def draw() -> None:
    """The board with what is on the screen. It keeps its place, and with it its state in the
    browser.

    It is sent before the widgets above it: the browser loads a script for each kind of them. A run
    that no longer changes can be read again, and has results.
    """
    if st.session_state.pop("told_in_fragment", False):
        st.rerun()  # problems are drawn by the page
    shown = tab.shown()
    picture, live = shown.picture, shown.live
    above = st.container()
    active = live is not None and live.active
    with tab.held_still(picture):
        again = None if active else what_if.again_of(picture)
        told = picture if again is None else again.shown
        mode: Literal["live", "replay"] = (
            "live" if told.live and told.live.status != "failed" else "replay"
        )
        message = board.message(told.run, told.key, mode, told.autoplay, told.cursor)
    message |= {} if again is None else again.message
    dragged = (
        partial(what_if.drag, picture) if not active and what_if.can_be_dragged(picture) else None
    )
    board.mount(message, on_grow=grow if told is picture else None, on_what_if=dragged)
    if not active:
        what_if.controls_of(picture, again, above)
    if live is not None and st.session_state.polled == "running":
        with above:
            tell_of(live)
    elif (
        active and st.session_state.polled not in POLL_SECONDS
    ):  # it has grown from the run that was shown
        st.rerun()
    if not active and told.run is not None:
        with tab.held_still(told):
            results.show(told, told.run)


def tell_of(live: LiveRun) -> None:
    """How far the run is. Where it begins or ends, the page is drawn anew."""
    live.watch()
    now = live.status
    st.progress(*status.run_progress(live))
    if now != st.session_state.polled and st.session_state.polled in POLL_SECONDS:
        st.rerun()


shown = tab.shown()
tab.note_in_url(shown.place if shown.live is not None else {})
if "prompt" not in st.session_state:
    controls.ensure_defaults()
    fill_in_first()
controls.ensure_defaults()
now = shown.live.status if shown.live is not None else ""
active = now in POLL_SECONDS
st.session_state.polled = now

st.subheader("Where does the model hesitate?")
controls.run_bar(run, tab.stop, active)

notices = st.container()
for problem in messages.problems(shown.live, shown.ended):
    notices.error(plain(problem))
if shown.live is None:
    notices.caption(f"Recorded run: {plain(shown.title)}. {plain(shown.shows)}")

every = polling.interval(POLL_SECONDS[now]) if active else None
polling.fragment(tell, None if now == "running" else every)
polling.fragment(draw, every if now == "running" else None)

with st.sidebar:
    st.selectbox(
        "Examples",
        bundled_runs.recordings(),
        index=None,
        format_func=lambda recording: recording.title,
        key="recording",
        on_change=open_recording,
        placeholder="Choose one",
    )
    started = None if active else shown.picture.started
    saved_runs.gallery(
        open_saved, shown.picture.events if started else None, started.prompt if started else ""
    )
    controls.sidebar()
    st.file_uploader(
        "Open a run file", type=["eab"], key="upload", on_change=open_upload, max_upload_size=32
    )

if not active and shown.live is not None:
    for suggestion in suggestions(shown.run) if shown.run is not None else ():
        notices.button(
            suggestion.label,
            on_click=mend,
            args=(suggestion.widgets,),
            key=f"mend_{suggestion.label}",
        )
    notices.caption(controls.changed_since(shown.started))
polling.draw_fragments()
