"""Explore: run, watch, inspect. The picture is one component; the engine works in a thread of its own."""

import streamlit as st

from app import board, controls, gallery, results, session
from app.words import plain
from eab.config import BranchingConfig
from eab.errors import EabError, RecordError

POLL_SECONDS = 0.25


def open_recording() -> None:
    recording = st.session_state.recording
    if recording is not None:
        session.show_recording(recording)
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
        config = BranchingConfig.from_settings(st.session_state.wanted)
        session.start(st.session_state.prompt, config, st.session_state.wanted_model)
    except EabError as error:
        st.session_state.problem = str(error)


def watch() -> None:
    """Redraw what is on the screen; a live run is polled until it ends."""
    shown = session.shown()
    live = shown.live
    if live is None:
        board.show(shown.state, key=shown.key, mode="replay", autoplay=shown.autoplay)
        return
    live.watch()
    with live.lock:
        active = live.active
        status(live.status)
        board.show(live.state, key=shown.key, mode="live", autoplay=False)
    if not active and st.session_state.get("polling"):
        st.session_state.polling = False
        st.rerun()


def status(name: str) -> None:
    shown = session.shown()
    steps = len(shown.state.steps)
    total = shown.state.started.config.max_new_tokens if shown.state.started else 1
    words = {
        "loading": "Loading the model ...",
        "running": f"Generating: step {steps} of {total}" if shown.state.started else "Probing the prompt ...",
        "ended": f"Done after {steps} steps" if steps else "Stopped before the first step",
        "failed": "This run broke",
    }
    st.progress(min(1.0, steps / total) if shown.live and shown.live.active else 1.0, text=words[name])


shown = session.shown()
if "prompt" not in st.session_state:
    controls.fill_from(shown.state.started)
controls.ensure_defaults()
active = shown.live is not None and shown.live.active
st.session_state.polling = active

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
    st.session_state.wanted_model = controls.model_name()
    wanted = controls.settings()
    st.session_state.wanted = wanted
    st.file_uploader("Open a run file", type=["eab"], key="upload", on_change=open_upload, max_upload_size=32)

st.title("Where does the model hesitate?")
left, right = st.columns([5, 1], vertical_alignment="bottom")
with left:
    prompt = controls.prompt_box()
with right:
    st.button("Run", on_click=run, type="primary", icon=":material/play_arrow:", width="stretch", key="run_button")
    st.button("Stop generation", on_click=session.stop, disabled=not active, width="stretch", key="stop_button")

problem = st.session_state.pop("problem", "") or (shown.live.message if shown.live else "")
if problem:
    st.error(plain(problem))
if shown.state.ended is not None and shown.state.ended.message:
    st.warning(plain(shown.state.ended.message))
if shown.live is None:
    st.caption(f"Recorded run: {plain(shown.title)}. Replays need no model.")
elif difference := controls.changed_since(shown.state.started, prompt, wanted):
    st.caption(difference)

st.fragment(watch, run_every=POLL_SECONDS if active else None)()

if not active and shown.state.started is not None:
    results.show(shown)
