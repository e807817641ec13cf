"""Explore: run, watch, inspect. The board is one component; the engine works in its own thread."""

from functools import partial
from typing import Any, Literal

import streamlit as st

from app.server import bundled_runs
from app.server.live_run import LiveRun
from app.server.suggestions import suggestions
from app.state import messages, polling, status, tab
from app.state.slot import note_in_url
from app.widgets import board, controls, results, saved_runs, what_if
from app.widgets.markdown import plain
from eab.config import BranchingConfig
from eab.errors import EabError, RecordError

# At least this long between two polls, by the status of the run.
POLL_SECONDS = {"loading": 0.5, "waiting": 1.0, "running": 0.25}


def open_recording() -> None:
    if st.session_state.recording is not None:
        tab.open_recording(st.session_state.recording)
        fill_in(keep="recording")


def open_saved() -> None:
    if st.session_state[saved_runs.CHOSEN] is None:
        return
    try:
        tab.open_saved(st.session_state[saved_runs.CHOSEN])
    except EabError as error:
        messages.notify(str(error))
    else:
        fill_in(keep=saved_runs.CHOSEN)


def open_upload() -> None:
    upload = st.session_state.upload
    if upload is None:
        return
    try:
        tab.open_file(upload.getvalue(), upload.name)
    except RecordError as error:
        messages.notify(str(error))
    else:
        fill_in()


def fill_in(keep: str = "") -> None:
    """Set the widgets to the run on the screen.

    Args:
        keep: The list whose choice stays. The others are cleared, so that the same run can be
            chosen again.
    """
    clear_choices(keep)
    current = tab.current()
    messages.notify(controls.fill_from(current.prompt, current.config, current.model))


def fill_in_first() -> None:
    """Set the widgets of a new tab: a link's settings go before those of the run it names."""
    current, link = tab.current(), tab.link()
    prompt = current.prompt if link.prompt is None else link.prompt
    config, model = link.config or current.config, link.model or current.model
    found = (messages.message(), controls.fill_from(prompt, config, model))
    messages.notify(" ".join(filter(None, found)))


def clear_choices(keep: str = "") -> None:
    for choice in {"recording", saved_runs.CHOSEN} - {keep}:
        st.session_state[choice] = None


def run() -> None:
    messages.clear()
    try:
        config = BranchingConfig.from_settings(controls.settings())
        tab.start(controls.prompt(), config, controls.model_name())
    except EabError as error:
        messages.notify(str(error))
    else:
        clear_choices()


def grow(address: tab.TokenAddress) -> None:
    messages.clear()
    try:
        config = BranchingConfig.from_settings(controls.settings())
        tab.grow(address, config, controls.model_name())
    except EabError as error:
        messages.notify(str(error))
        st.session_state.notified_in_fragment = True
    else:
        clear_choices()


def apply_suggestion(widgets: dict[str, Any]) -> None:
    controls.apply(widgets)
    run()


def draw_waiting() -> None:
    """The progress of a run whose board does not grow yet, or not any more.

    While the run is running, `draw_board` polls and shows the progress instead.
    """
    live = tab.current().live
    if live is not None and st.session_state.drawn_status != "running":
        draw_progress(live)


def draw_board() -> None:
    """The board, and below it the results of a run that no longer changes.

    The board keeps its place on the page, and with it its state in the browser. It is sent before
    the widgets above it, since the browser loads a script for each kind of widget.
    """
    if st.session_state.pop("notified_in_fragment", False):
        st.rerun()  # the page shows the messages, not this fragment
    live, displayed = tab.current().live, tab.displayed()
    above = st.container()
    active = live is not None and live.active
    with displayed.locked:
        view = None if active else what_if.view_of(displayed)
        drawn = displayed if view is None else view.run
        mode: Literal["live", "replay"] = (
            "live" if drawn.live and drawn.live.status != "failed" else "replay"
        )
        message = board.message(
            drawn.run, drawn.key, mode, drawn.details.autoplay, drawn.details.cursor
        )
    message |= {} if view is None else view.message
    draggable = not active and what_if.can_be_dragged(displayed)
    board.mount(
        message,
        on_grow=grow if drawn is displayed else None,
        on_what_if=partial(what_if.set_threshold, displayed) if draggable else None,
    )
    if not active:
        what_if.draw_controls(displayed, view, above)
    if live is not None and st.session_state.drawn_status == "running":
        with above:
            draw_progress(live)
    elif active and st.session_state.drawn_status not in POLL_SECONDS:
        st.rerun()  # `grow` started this run; the rest of the page shows the one before
    if not active and drawn.run is not None:
        with drawn.locked:
            results.show(drawn, drawn.run)


def draw_progress(live: LiveRun) -> None:
    """The progress of the run; the page is drawn anew when its status changes."""
    live.mark_watched()
    now = live.status
    st.progress(*status.run_progress(live))
    drawn = st.session_state.drawn_status
    if now != drawn and drawn in POLL_SECONDS:
        st.rerun()


def sidebar() -> None:
    st.selectbox(
        "Examples",
        bundled_runs.recordings(),
        index=None,
        format_func=lambda recording: recording.title,
        key="recording",
        on_change=open_recording,
        placeholder="Choose one",
    )
    started = None if active else displayed.started
    saved_runs.gallery(
        open_saved, displayed.events if started else None, started.prompt if started else ""
    )
    controls.sidebar()
    st.file_uploader(
        "Open a run file", type=["eab"], key="upload", on_change=open_upload, max_upload_size=32
    )


current, displayed = tab.current(), tab.displayed()
note_in_url(current.link_ids if current.live is not None else {})
if "prompt" not in st.session_state:
    controls.ensure_defaults()
    fill_in_first()
controls.ensure_defaults()
now = current.live.status if current.live is not None else ""
active = now in POLL_SECONDS
st.session_state.drawn_status = now

st.subheader("Where does the model hesitate?")
controls.run_bar(run, tab.stop, active)

notices = st.container()
for problem in messages.problems(current.live, current.ended):
    notices.error(plain(problem))
if current.live is None:
    notices.caption(f"Recorded run: {plain(current.title)}. {plain(current.details.description)}")

every = polling.interval(POLL_SECONDS[now]) if active else None
polling.fragment(draw_waiting, None if now == "running" else every)
polling.fragment(draw_board, every if now == "running" else None)

with st.sidebar:
    sidebar()

if not active and current.live is not None:
    for suggestion in suggestions(current.run) if current.run is not None else ():
        notices.button(
            suggestion.label,
            on_click=apply_suggestion,
            args=(suggestion.widgets,),
            key=f"suggestion_{suggestion.label}",
        )
    notices.caption(controls.changed_since(current.started))
polling.draw_fragments()
