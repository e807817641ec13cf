"""Explore: run, watch, inspect. The picture is one component; the engine works in a thread of its own."""

from typing import Any

import streamlit as st

from app import board, controls, gallery, model_shelf, results, session
from app.remedies import remedies
from app.words import plain
from eab.config import BranchingConfig
from eab.errors import EabError, RecordError

POLL_SECONDS = 0.25


def open_recording() -> None:
    if st.session_state.recording is not None:
        session.show_recording(st.session_state.recording)
        fill_in()


def open_upload() -> None:
    upload = st.session_state.upload
    if upload is None:
        return
    try:
        session.show_file(upload.getvalue(), upload.name)
    except RecordError as error:
        session.say(str(error))
    else:
        st.session_state.recording = None
        fill_in()


def fill_in() -> None:
    shown = session.shown()
    session.say(controls.fill_from(shown.prompt, shown.config))


def run() -> None:
    session.say("")
    try:
        config = BranchingConfig.from_settings(controls.settings())
        session.start(controls.prompt(), config, controls.model_name())
    except EabError as error:
        session.say(str(error))
    else:
        st.session_state.recording = None  # so that the same recording can be chosen again


def grow(place: board.Place) -> None:
    session.say("")
    try:
        config = BranchingConfig.from_settings(controls.settings())
        session.grow(place, config, controls.model_name())
    except EabError as error:
        session.say(str(error))
    else:
        st.session_state.recording = None


def mend(widgets: dict[str, Any]) -> None:
    controls.apply(widgets)
    run()


def watch() -> None:
    """Draw what is on the screen; a live run is polled until it ends."""
    shown = session.shown()
    picture, live = shown.picture, shown.live
    status = st.container()  # always there: the board keeps its place, and with it its state in the browser
    with session.held_still(picture):
        message = board.message(picture.state, picture.key, "live" if picture.live else "replay", picture.autoplay)
    active = live is not None and live.active
    if live is not None:
        live.watch()
        status.progress(*session.progress(live))
    board.mount(message, on_grow=grow)
    if active != st.session_state.polling:  # it has ended, or another one has grown from it
        st.rerun()


shown = session.shown()
if "prompt" not in st.session_state:
    controls.ensure_defaults()
    fill_in()
controls.ensure_defaults()
active = shown.live is not None and shown.live.active
st.session_state.polling = active

st.subheader("Where does the model hesitate?")
missing = model_shelf.missing(controls.model_name())
controls.run_bar(run, session.stop, active, missing)

notices = st.container()
if missing:
    notices.info(f"Replay only: {plain(missing)}. Recorded runs open as always.")
for problem in session.problems(shown.live, shown.state.ended):
    notices.error(plain(problem))
if shown.live is None:
    notices.caption(f"Recorded run: {plain(shown.title)}. {plain(shown.shows)}")

st.fragment(watch, run_every=POLL_SECONDS if active else None)()

with st.sidebar:
    st.selectbox(
        "Examples",
        gallery.recordings(),
        index=None,
        format_func=lambda recording: recording.title,
        key="recording",
        on_change=open_recording,
        placeholder="Choose one",
    )
    controls.sidebar()
    st.file_uploader("Open a run file", type=["eab"], key="upload", on_change=open_upload, max_upload_size=32)

if not active and shown.live is not None:
    for remedy in remedies(shown.state):
        notices.button(remedy.label, on_click=mend, args=(remedy.widgets,), key=f"mend_{remedy.label}")
    notices.caption(controls.changed_since(shown.state.started))
if not active and shown.picture.state.started is not None:
    with session.held_still(shown.picture):
        results.show(shown.picture)
