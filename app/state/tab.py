"""The run that one browser tab shows on Explore, and the link that the tab was opened with."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, cast

import streamlit as st

from app.server import links, rules
from app.server.links import Link
from app.server.live_run import LiveRun
from app.server.store import default_store
from app.state.messages import notify
from app.state.slot import Entry, Slot, live_entry
from eab import record
from eab.analysis.graft import is_new
from eab.config import BranchingConfig
from eab.engine.job import Job, grown_run_job, run_job
from eab.engine.request import Request
from eab.errors import EabError, LinkError, PromptError, StoreError
from eab.events import Event, Message, RunEnded, RunStarted
from eab.formatting import counted
from eab.lessons import bundled_runs
from eab.run import RunFold, RunState, fold_prefix

_DETAILS: Final = "run_details"
_LINK: Final = "link"

_SLOT: Final = Slot(
    "run",
    RunFold,
    RunFold,  # never asked for: `_follow` fills the slot of a new tab
    drawable=lambda live: live.state.run is not None,
)


@dataclass(frozen=True, slots=True)
class TokenAddress:
    """A token of a run."""

    run: str  # the key of the run
    path: int  # its id
    token: int  # its index in the path
    candidate: int  # to take instead of the token; -1 takes none


@dataclass(frozen=True)
class Details:
    """What only Explore needs to know of a run."""

    title: str
    description: str  # a sentence; empty for a live run
    events: Sequence[Event]  # those of a live run still grow
    # URL parameters by which a link finds it; empty for an uploaded file
    link_ids: dict[str, str] = field(default_factory=dict)
    autoplay: bool = False  # the board plays it from the beginning
    cursor: int | None = None  # the step to begin at
    # the run that it was grown from in this tab, if it is a new branch of that
    source: RunState | None = None
    grown_from: str = ""  # the key of the run that it was grown from in this tab


@dataclass(frozen=True)
class OpenRun(Entry[RunFold]):
    """A run as Explore shows it: what the slot holds, and what only Explore needs."""

    details: Details = field(kw_only=True)

    @property
    def run(self) -> RunState | None:
        """The run; None for a live one that has not started."""
        return self.state.run

    @property
    def started(self) -> RunStarted | None:
        """The header of the run."""
        return self.run.started if self.run is not None else None

    @property
    def ended(self) -> RunEnded | None:
        """The last event of the run, also of one that ended before it started."""
        return self.state.ended

    @property
    def cut(self) -> str:
        """That a recorded run has no end, as a sentence; else empty."""
        if self.live is not None or self.run is None or self.ended is not None:
            return ""
        return f"It breaks off after {counted(len(self.run.steps), 'step')}."

    @property
    def asked(self) -> Request | RunStarted:
        """Its prompt, messages and settings, also if it never started."""
        return self.live.request if self.live is not None else self.state.started_run().started

    @property
    def model(self) -> str:
        """The name of its model."""
        if self.live is not None:
            return self.live.model_name
        return self.state.started_run().started.model.full_name


def current() -> OpenRun:
    """The run started or opened last; in a new tab, what its link names, or the first recording."""
    if not _SLOT.filled:
        _follow(link())
    return _with_details(_SLOT.current())


def displayed() -> OpenRun:
    """The run to draw: the current one, or the one before it until this one has started."""
    current()
    return _with_details(_SLOT.displayed())


def link() -> Link:
    """The link that this tab was opened with; a bad one is explained on the page."""
    if _LINK not in st.session_state:
        try:
            st.session_state[_LINK] = links.from_query(st.query_params)
        except LinkError as error:
            st.session_state[_LINK] = Link()
            notify(f"This link cannot be opened: {error}. The page starts as usual")
    return cast(Link, st.session_state[_LINK])


def link_to(run: OpenRun) -> Link:
    """A link to this run: where it is found, its prompt and settings."""
    place = {name: run.details.link_ids.get(name, "") for name in ("run", "saved", "example")}
    return Link(
        **place,
        prompt=run.asked.prompt,
        messages=run.asked.messages,
        model=run.model,
        config=run.asked.config,
        cursor=None,
    )


def start(
    prompt: str, config: BranchingConfig, model_name: str, messages: tuple[Message, ...] = ()
) -> None:
    """Start a run and show it; a run of this tab that is still active is stopped."""
    _start(run_job(prompt, config, model_name, messages))


def grow(address: TokenAddress, config: BranchingConfig, model_name: str) -> None:
    """Start a run from a token of the displayed run; PromptError if there is no such token."""
    source = displayed()
    with source.locked:
        run = source.run
        if run is None or address.run != source.key:
            raise PromptError("another run is on the screen now; choose the token again")
        continued = run.continuation(address.path, address.token, address.candidate)
        # What it is now: it may be growing.
        before = fold_prefix(source.details.events).started_run()
    _start(grown_run_job(run.started, continued, config, model_name))
    grown = _SLOT.current().key
    details: dict[str, Details] = st.session_state[_DETAILS]
    new = before if is_new(before, continued) else None
    details[grown] = replace(details[grown], source=new, grown_from=source.key)


def stop() -> None:
    """Stop the current run, if it is active; that of a class only its lecturer stops."""
    if _SLOT.filled and _SLOT.current().guest and _SLOT.current().active:
        notify("Only the lecturer can stop this run. Press Stop following to explore on your own")
    _SLOT.stop()


def open_recording(recording: bundled_runs.Recording) -> None:
    """Show a bundled run from its beginning."""
    events = bundled_runs.events_of(recording)
    ids = {"example": recording.file}
    _open(recording.file, Details(recording.title, recording.description, events, ids))


def open_file(data: bytes, name: str) -> None:
    """Show an uploaded run file; RecordError if it is none, and the page keeps what it shows."""
    key = hashlib.sha256(data).hexdigest()[:16]
    events = record.loads(data, name, rules.current().most_tokens)
    _open(key, Details(name, "Opened from a file.", events))


def open_saved(run_id: str) -> None:
    """Show a run of the store; StoreError or RecordError if it cannot be read."""
    store = default_store()
    if store is None:
        raise StoreError("saved runs are switched off on this server; open a run file instead")
    saved, events = store.load(run_id)
    description = f"Saved on {saved.saved_at[:10]}."
    _open(f"saved-{run_id}", Details(saved.name, description, events, {"saved": run_id}))


def retitle_saved(run_id: str, title: str) -> None:
    """Show another title for a run of the store, if this tab shows that run."""
    shown: dict[str, Details] = st.session_state.get(_DETAILS, {})
    for key, details in shown.items():
        if details.link_ids == {"saved": run_id}:
            shown[key] = replace(details, title=title)


def open_live(live: LiveRun) -> None:
    """Show a run of this process again."""
    _SLOT.stop()
    _show(live_entry(live), _live_details(live))


def open_recorded(key: str, details: Details) -> None:
    """Show a recorded run again, from its beginning."""
    _open(key.removeprefix("recorded-"), details)


def open_guest(run: OpenRun) -> None:
    """Show a run of another tab, as it is there; nothing here changes it."""
    if current().key != run.key:
        _SLOT.stop()
        details = replace(run.details, autoplay=False, cursor=None)
        _show(replace(run, guest=True), details)


def _follow(link: Link) -> None:
    """Show the run that the link names, or the first bundled one; explain what is missing."""
    live = _SLOT.find(link.run)
    example = next((each for each in bundled_runs.recordings() if each.file == link.example), None)
    try:
        if live is not None:
            _show(live_entry(live), _live_details(live))
        elif link.saved:
            open_saved(link.saved)
        else:
            open_recording(example or bundled_runs.recordings()[0])
            if link.run or (link.example and example is None):
                kind = "run" if link.run else "example"
                raise LinkError(f"the {kind} of this link is not on this server")
    except EabError as error:
        settings = ". Its settings are set: press Run to make it again" if link.complete else ""
        notify(f"{error}{settings}")
        if not _SLOT.filled:
            open_recording(bundled_runs.recordings()[0])
    run = _with_details(_SLOT.current())
    _show(run, replace(run.details, cursor=link.cursor))


def _open(key: str, details: Details) -> None:
    """Show a recorded run from its beginning; RecordError if it never started."""
    state = fold_prefix(details.events)
    state.started_run()
    first = not _SLOT.filled
    _SLOT.stop()
    if not first:
        st.query_params.clear()  # they name what the tab showed before
    _show(Entry(f"recorded-{key}", state), replace(details, autoplay=True, cursor=None))


def _start(job: Job[RunFold]) -> None:
    """Start a run; until it can be drawn, the displayed one stays on the screen."""
    before = _SLOT.start(job)
    entry = _SLOT.current()
    assert entry.live is not None
    st.query_params.from_dict({"run": entry.live.id})
    st.session_state[_DETAILS] = {
        before.key: replace(_with_details(before).details, autoplay=False),
        entry.key: _live_details(entry.live),
    }


def _show(entry: Entry[RunFold], details: Details) -> None:
    _SLOT.show(entry)
    st.session_state[_DETAILS] = {entry.key: details}


def _with_details(entry: Entry[RunFold]) -> OpenRun:
    details = st.session_state[_DETAILS][entry.key]
    return OpenRun(entry.key, entry.state, entry.live, entry.guest, details=details)


def _live_details(live: LiveRun) -> Details:
    return Details(live.request.prompt, "", live.events, {"run": live.id})
