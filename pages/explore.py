"""Explore: run, watch, inspect. The picture is one component; the engine works in a thread of its own."""

import streamlit as st

from app import board, controls, gallery, results, session
from app.words import plain
from eab.config import BranchingConfig
from eab.errors import EabError, RecordError

POLL_SECONDS = 0.25


def open_recording() -> None:
    if st.session_state.recording is not None:
        session.show_recording(st.session_state.recording)
        controls.fill_from(session.shown().state.started)


def open_upload() -> None:
    upload = st.session_state.upload
    if upload is None:
        return
    try:
        session.show_file(upload.getvalue(), upload.name)
    except RecordError as error:
        st.session_state.problem = str(error)
    else:
        controls.fill_from(session.shown().state.started)


def run() -> None:
    try:
        config = BranchingConfig.from_settings(controls.settings())
        session.start(controls.prompt(), config, controls.model_name())
    except EabError as error:
        st.session_state.problem = str(error)


def watch() -> None:
    """Draw what is on the screen; a live run is polled until it ends."""
    shown = session.shown()
    live = shown.live
    status = st.container()  # always there: the board keeps its place, and with it its state in the browser
    if live is None:
        board.show(shown.state, key=shown.key, mode="replay", autoplay=shown.autoplay)
        return
    live.watch()
    with live.lock:
        picture = shown.picture
        mode = "live" if picture.live else "replay"
        status.progress(*session.progress(live))
        board.show(picture.state, key=picture.key, mode=mode, autoplay=False)
        ended = not live.active
    if ended and st.session_state.polling:
        st.rerun()


shown = session.shown()
if "prompt" not in st.session_state:
    controls.fill_from(shown.state.started)
controls.ensure_defaults()
active = shown.live is not None and shown.live.active
st.session_state.polling = active

st.subheader("Where does the model hesitate?")
left, right = st.columns([5, 1])
with left:
    controls.prompt_box()
with right:
    st.button("Run", on_click=run, type="primary", icon=":material/play_arrow:", width="stretch", key="run_button")
    st.button("Stop generation", on_click=session.stop, disabled=not active, width="stretch", key="stop_button")

notices = st.container()
for problem in session.problems(shown):
    notices.error(plain(problem))
if shown.live is None:
    notices.caption(f"Recorded run: {plain(shown.title)}. {plain(shown.shows)}")

st.fragment(watch, run_every=POLL_SECONDS if active else None)()

with st.sidebar:
    st.selectbox(
        "Recorded runs",
        gallery.recordings(),
        index=None,
        format_func=lambda recording: recording.title,
        key="recording",
        on_change=open_recording,
        placeholder="Choose one to replay",
    )
    controls.sidebar()
    st.file_uploader("Open a run file", type=["eab"], key="upload", on_change=open_upload, max_upload_size=32)

if not active and shown.live is not None:
    notices.caption(controls.changed_since(shown.state.started))
if not active and shown.picture.state.started is not None:
    results.show(shown.picture)
