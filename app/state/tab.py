"""The run that one browser tab shows, and the link that the tab was opened with."""

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Final, cast

import streamlit as st

from app.server import bundled_runs, links
from app.server.links import Link
from app.server.live_run import LiveRun
from app.server.store import default_store
from app.state.messages import notify
from app.state.process import owner, worker
from eab import record
from eab.config import BranchingConfig
from eab.errors import EabError, LinkError, PromptError, StoreError
from eab.events import Event, RunEnded, RunStarted
from eab.run import Run, RunFold, fold

_SHOWN: Final = "shown"
_RUN_IN_URL: Final = "run"
_LINK: Final = "link_followed"


@dataclass(frozen=True, slots=True)
class TokenAddress:
    """A token of a run, and which of its candidates to take instead (-1: none)."""

    run: str
    path: int
    token: int
    candidate: int


@dataclass
class Shown:
    """The run on the screen: a live one, or a recorded one (then `live` is None). `key` names it
    for the board.

    place: where a link finds it again; empty for a file that somebody opened. cursor: the step to
    begin at.
    """

    key: str
    title: str
    shows: str
    events: Sequence[Event]
    recorded: Run | None = None
    live: LiveRun | None = None
    autoplay: bool = False
    before: "Shown | None" = None
    place: dict[str, str] = field(default_factory=dict)
    cursor: int | None = None

    @property
    def run(self) -> Run | None:
        """The run; None for a live one that has not started."""
        return self.live.state.run if self.live is not None else self.recorded

    @property
    def started(self) -> RunStarted | None:
        """The header of the run."""
        return self.run.started if self.run is not None else None

    @property
    def ended(self) -> RunEnded | None:
        """The last event of the run, also of one that ended before it started."""
        if self.live is not None:
            return self.live.state.ended
        return self.recorded.ended if self.recorded is not None else None

    @property
    def prompt(self) -> str | None:
        """What was asked, also of a run that never started."""
        if self.live is not None:
            return self.live.prompt
        return self.started.prompt if self.started is not None else None

    @property
    def config(self) -> BranchingConfig | None:
        """How it was asked."""
        if self.live is not None:
            return self.live.config
        return self.started.config if self.started is not None else None

    @property
    def model(self) -> str:
        """Which model it asked."""
        if self.live is not None:
            return self.live.model_name
        return self.started.model.name if self.started is not None else "embedded"

    @property
    def picture(self) -> "Shown":
        """What to draw: a run that has not started yet leaves the one before it on the screen."""
        return self.before if self.run is None and self.before is not None else self


def shown() -> Shown:
    """What this tab shows: its own run, what its link names (a reload is one, too), or the first
    bundled recording.
    """
    if _SHOWN not in st.session_state:
        _follow(link())
    return cast(Shown, st.session_state[_SHOWN])


def link() -> Link:
    """The link that this tab was opened with. A bad one is explained, and the page starts as
    usual.
    """
    if _LINK not in st.session_state:
        try:
            st.session_state[_LINK] = links.from_query(st.query_params)
        except LinkError as error:
            st.session_state[_LINK] = Link()
            notify(f"This link cannot be followed: {error}. The page starts as usual")
    return cast(Link, st.session_state[_LINK])


def _follow(link: Link) -> None:
    """Show the run that the link names, or the first bundled one; words on what is missing."""
    live = worker().find(link.run, RunFold)
    example = next((one for one in bundled_runs.recordings() if one.file == link.example), None)
    try:
        if live is not None:
            _show(_shown_live(live))
        elif link.saved:
            show_saved(link.saved)
        else:
            show_recording(example or bundled_runs.recordings()[0])
            if link.run or (link.example and example is None):
                raise LinkError(
                    f"the {'run' if link.run else 'example'} of this link is not known here (any more)"
                )
    except EabError as error:
        again = ". Its settings are set: press Run to make it again" if link.whole else ""
        notify(f"{error}{again}")
        if _SHOWN not in st.session_state:
            show_recording(bundled_runs.recordings()[0])
    st.session_state[_SHOWN] = replace(st.session_state[_SHOWN], cursor=link.cursor)


def link_to(shown: Shown, cursor: int | None) -> Link:
    """A link to this run: where it is, how it was asked, and the cursor."""
    return Link(
        **shown.place, prompt=shown.prompt, model=shown.model, config=shown.config, cursor=cursor
    )


def start(prompt: str, config: BranchingConfig, model_name: str) -> None:
    """Begin a run and show it; a run of this tab that is still going is stopped."""
    stop()
    _show_new(worker().start(prompt, config, model_name, owner()))


def grow(place: TokenAddress, config: BranchingConfig, model_name: str) -> None:
    """Begin a run that goes on from a place of the run on the screen, and show it. PromptError if
    there is none.
    """
    picture = shown().picture
    with held_still(picture):
        run = picture.run
        if run is None or place.run != picture.key:
            raise PromptError("the run on the screen has changed meanwhile; choose the token again")
        continued = run.continuation(place.path, place.token, place.candidate)
    stop()
    _show_new(worker().grow(run.started, continued, config, model_name, owner()))


def stop() -> None:
    """Stop the run on the screen, if it is going."""
    current = cast(Shown | None, st.session_state.get(_SHOWN))
    if current is not None and current.live is not None:
        current.live.stop()


def show_recording(recording: bundled_runs.Recording) -> None:
    """Show a bundled run from its beginning."""
    place = {"example": recording.file}
    _show_events(
        bundled_runs.events_of(recording), recording.title, recording.shows, recording.file, place
    )


def show_file(data: bytes, name: str) -> None:
    """Show an uploaded run file. RecordError leaves the screen as it is."""
    key = hashlib.sha256(data).hexdigest()[:16]
    _show_events(record.loads(data, name), name, "Opened from a file.", key, {})


def show_saved(run_id: str) -> None:
    """Show a run of the store. StoreError or RecordError leave the screen as it is."""
    store = default_store()
    if store is None:
        raise StoreError("saved runs are switched off on this machine; open a run file instead")
    saved, events = store.load(run_id)
    _show_events(
        events, saved.name, f"Saved on {saved.saved_at[:10]}.", f"saved-{run_id}", {"saved": run_id}
    )


def note_in_url(place: dict[str, str]) -> None:
    """Write where a reload finds what is on the screen; a change of page wipes it."""
    changed = {name: value for name, value in place.items() if st.query_params.get(name) != value}
    if changed:
        st.query_params.update(changed)


def held_still(shown: Shown) -> AbstractContextManager[object]:
    """While this is open the run on the screen does not change."""
    return shown.live.lock if shown.live is not None else nullcontext()


def _show_events(
    events: Sequence[Event], title: str, shows: str, key: str, place: dict[str, str]
) -> None:
    first = _SHOWN not in st.session_state
    stop()
    if not first:
        st.query_params.clear()  # the link that this tab was opened with is left behind
    _show(Shown(f"recorded-{key}", title, shows, events, fold(events), autoplay=True, place=place))


def _show_new(live: LiveRun) -> None:
    before = replace(shown().picture, before=None, autoplay=False)
    st.query_params.from_dict({_RUN_IN_URL: live.id})
    _show(replace(_shown_live(live), before=before))


def _shown_live(live: LiveRun) -> Shown:
    place = {"run": live.id}
    return Shown(f"live-{live.id}", live.prompt, "", live.events, live=live, place=place)


def _show(new: Shown) -> None:
    st.session_state[_SHOWN] = new
