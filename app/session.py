"""What one browser tab looks at. The only user of st.session_state's own keys, st.cache_resource and the page's URL."""

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import streamlit as st

from app import board, gallery
from app.model_shelf import ModelShelf
from app.worker import Live, LiveRun, Worker
from eab import record, token_text
from eab.config import BranchingConfig
from eab.errors import PromptError
from eab.events import Event, RunEnded
from eab.run import Run, fold
from eab.words import counted

WARM_UP_AFTER: Final = 5.0  # seconds: the first picture moves before torch is imported
_PROBLEM: Final = "problem"
_SHOWN: Final = "shown"
_RUN_IN_URL: Final = "run"


@dataclass
class Shown:
    """The run on the screen: a live one, or a recorded one (then `live` is None). `key` names it for the board."""

    key: str
    title: str
    shows: str
    events: Sequence[Event]
    state: Run
    live: LiveRun | None = None
    autoplay: bool = False
    before: "Shown | None" = None

    @property
    def prompt(self) -> str | None:
        """What was asked, also of a run that never started."""
        return self.live.prompt if self.live else self.state.started.prompt if self.state.started else None

    @property
    def config(self) -> BranchingConfig | None:
        """How it was asked."""
        return self.live.config if self.live else self.state.started.config if self.state.started else None

    @property
    def picture(self) -> "Shown":
        """What to draw: a run that has not started yet leaves the one before it on the screen."""
        return self.before if self.state.started is None and self.before is not None else self


@st.cache_resource(show_spinner=False)
def worker() -> Worker:
    """The one worker of this process."""
    made = Worker(ModelShelf())
    made.warm_up("embedded", after=WARM_UP_AFTER)
    return made


def shown() -> Shown:
    """What this tab shows: its own run, the run named in the URL after a reload, or the first bundled recording."""
    if _SHOWN not in st.session_state:
        live = worker().find(st.query_params.get(_RUN_IN_URL, ""))
        if live is not None:
            _show(_shown_live(live))
        else:
            st.query_params.pop(_RUN_IN_URL, None)
            show_recording(gallery.recordings()[0])
    return cast(Shown, st.session_state[_SHOWN])


def start(prompt: str, config: BranchingConfig, model_name: str) -> None:
    """Begin a run and show it; a run of this tab that is still going is stopped."""
    stop()
    _show_new(worker().start(prompt, config, model_name))


def grow(place: board.Place, config: BranchingConfig, model_name: str) -> None:
    """Begin a run that goes on from a place of the run on the screen, and show it. PromptError if there is none."""
    picture = shown().picture
    with held_still(picture):
        started = picture.state.started
        if started is None or place.run != picture.key:
            raise PromptError("the run on the screen has changed meanwhile; choose the token again")
        continued = picture.state.continuation(place.path, place.token, place.candidate)
    stop()
    _show_new(worker().grow(started, continued, config, model_name))


def stop() -> None:
    """Stop the run on the screen, if it is going."""
    current = cast(Shown | None, st.session_state.get(_SHOWN))
    if current is not None and current.live is not None:
        current.live.stop()


def show_recording(recording: gallery.Recording) -> None:
    """Show a bundled run from its beginning."""
    _show_events(gallery.events_of(recording), recording.title, recording.shows, key=recording.file)


def show_file(data: bytes, name: str) -> None:
    """Show an uploaded run file. RecordError leaves the screen as it is."""
    key = hashlib.sha256(data).hexdigest()[:16]
    _show_events(record.loads(data, name), name, "Opened from a file.", key)


def progress(live: LiveRun) -> tuple[float, str]:
    """How far a live run is, as a share and in words."""
    if (standing := not_moving(live)) is not None:
        return standing
    steps, started = len(live.state.steps), live.state.started
    if not live.active:
        return 1.0, f"{'Stopped' if live.stopped else 'Done'} after {steps} steps"
    if started is None:
        return 0.0, f"Probing the prompt: step {len(live.state.probe)}"
    return min(1.0, steps / started.config.max_new_tokens), f"Step {steps} of {started.config.max_new_tokens}"


def not_moving(live: Live[Any]) -> tuple[float, str] | None:
    """Progress and words for a run that has not begun or could not go on; None for one that has begun or ended."""
    if live.status == "loading":
        return 0.0, "Loading the model ..."
    if live.active and (ahead := worker().ahead_of(live)):
        return 0.0, f"Waiting: {counted(ahead, 'run')} before yours"
    return (1.0, "This run could not go on") if live.status == "failed" else None


def held_still(shown: Shown) -> AbstractContextManager[object]:
    """While this is open the run on the screen does not change."""
    return shown.live.lock if shown.live is not None else nullcontext()


def problems(live: Live[Any] | None, ended: RunEnded | None) -> list[str]:
    """What went wrong, for the user to read: with an action just taken, or with the run on the screen."""
    just_now = st.session_state.get(_PROBLEM, "")
    said = (just_now, live.message if live is not None else "", ended.message if ended is not None else "")
    return [token_text.visible(problem) for problem in said if problem]


def say(problem: str) -> None:
    """Keep a message on the page until the next action; an empty one takes it away."""
    st.session_state[_PROBLEM] = problem


def _show_events(events: Sequence[Event], title: str, shows: str, key: str) -> None:
    stop()
    st.query_params.pop(_RUN_IN_URL, None)
    _show(Shown(f"recorded-{key}", title, shows, events, fold(events), autoplay=True))


def _show_new(live: LiveRun) -> None:
    st.query_params[_RUN_IN_URL] = live.id
    before = replace(shown().picture, before=None, autoplay=False)
    _show(replace(_shown_live(live), before=before))


def _shown_live(live: LiveRun) -> Shown:
    return Shown(f"live-{live.id}", live.prompt, "", live.events, live.state, live)


def _show(new: Shown) -> None:
    st.session_state[_SHOWN] = new
