"""The run that one browser tab shows on Explore, and the link that opened the tab."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import msgspec
import streamlit as st

from app.server import links, model_cache, rules
from app.server.links import Link
from app.server.store import default_store
from app.server.tasks import LiveRun
from app.state.session import notify
from app.state.slot import Entry, Slot, live_entry
from eab.analysis.label_rules import labelled
from eab.analysis.run_comparison import is_new
from eab.config import BranchingConfig
from eab.engine.job import Job, continued_run_job, extended_run_job, more_seeds, run_job
from eab.engine.remote import connection
from eab.engine.request import Request
from eab.errors import ConfigError, EabError, LinkError, PromptError, StoreError
from eab.formatting import counted
from eab.lessons import bundled_runs
from eab.run import RunFold, RunState, fold_prefix, record
from eab.run.events import Event, Labelled, LabelRule, Message, RunEnded, RunStarted
from eab.run.threshold import longer

_DETAILS: Final = "run_details"
_LINK: Final = "link"

_SLOT: Final = Slot(
    "run",
    RunFold,
    RunFold,  # never used: `_follow` fills the slot of a new tab
    drawable=lambda live: live.state.run is not None,
)


@dataclass(frozen=True)
class Details:
    """What only Explore needs to know about a run."""

    title: str
    description: str  # a sentence; empty for a live run
    events: Sequence[Event]  # a live run's list still grows
    # URL parameters by which a link finds it; empty for an uploaded file
    link_ids: dict[str, str] = field(default_factory=dict)
    autoplay: bool = False  # the board plays it from the beginning
    cursor: int | None = None  # the step to start at
    # the run that it was grown from in this tab, if it is a new branch of that run
    source: RunState | None = None
    grown_from: str = ""  # the key of the run that it was grown from in this tab


@dataclass(frozen=True)
class OpenRun(Entry[RunFold]):
    """A run as Explore shows it: the slot's entry, and what only Explore needs."""

    details: Details = field(kw_only=True)

    @property
    def run(self) -> RunState | None:
        """The run; None for a live run that has not started."""
        return self.state.run

    @property
    def started(self) -> RunStarted | None:
        """The header of the run."""
        return self.run.started if self.run is not None else None

    @property
    def ended(self) -> RunEnded | None:
        """The last event of the run, even if it ended before it started."""
        return self.state.ended

    @property
    def cut(self) -> str:
        """A sentence that says where an incomplete recording breaks off; else empty."""
        if self.live is not None or self.run is None or self.ended is not None:
            return ""
        return f"It breaks off after {counted(len(self.run.steps), 'step')}."

    @property
    def asked(self) -> Request | RunStarted:
        """Its prompt, messages and settings, even if it never started."""
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
    """The run to draw: the current one, or the previous one until the current has started."""
    current()
    return _with_details(_SLOT.displayed())


def link() -> Link:
    """The link that opened this tab; a bad link is explained on the page."""
    if _LINK not in st.session_state:
        try:
            st.session_state[_LINK] = links.from_query(st.query_params)
        except LinkError as error:
            st.session_state[_LINK] = Link()
            notify(f"This link cannot be opened: {error}. The page starts as usual")
    return cast(Link, st.session_state[_LINK])


def link_to(run: OpenRun) -> Link:
    """A link to this run: where it is found, its prompt, unless it is token ids, and settings."""
    has_text = run.started is None or not run.started.by_token_ids
    place = {name: run.details.link_ids.get(name, "") for name in ("run", "saved", "example")}
    is_kept = run.run is not None and (place["saved"] or place["example"])
    return Link(
        **place,
        labels=run.run.labels if run.run is not None and is_kept else (),
        prompt=run.asked.prompt if has_text else None,
        messages=run.asked.messages,
        model=run.model,
        config=run.asked.config,
        cursor=None,
    )


def start(
    prompt: str, config: BranchingConfig, model_name: str, messages: tuple[Message, ...] = ()
) -> None:
    """Start a run and show it; stop the previous run of this tab if it is still active."""
    _start(run_job(prompt, config, model_name, messages))


def grow(
    key: str, path: int, token: int, candidate: int, config: BranchingConfig, model_name: str
) -> None:
    """Grow a run from a token of the displayed run, or from another candidate (-1: the token).

    `token` is its index in the path. Raises PromptError if it does not exist.
    """
    source = displayed()
    with source.locked:
        run = source.run
        if run is None or key != source.key:
            raise PromptError("another run is on the screen now; choose the token again")
        continued = run.continuation(path, run.tokens_before(path) + token, candidate)
        # Its present state, because it may still grow.
        before = fold_prefix(source.details.events).started_run()
    new = before if is_new(before, continued) else None
    _start(continued_run_job(run.started, continued, config, model_name), new, source.key)


def go_on(key: str) -> None:
    """Make the displayed run again with more new tokens: its tree, which then goes on.

    Raises PromptError if another run is displayed, ConfigError if there are too many tokens.
    """
    shown = displayed()
    if shown.run is None or key != shown.key:
        raise PromptError("another run is on the screen now; press Continue again")
    started, details = shown.run.started, shown.details
    job = continued_run_job(started, started.continued_tokens, longer(started), shown.model)
    _start(job, details.source, details.grown_from)


def can_label() -> bool:
    """Whether texts of the displayed run can be labelled: it has ended and is this tab's own."""
    shown = displayed()
    return shown.run is not None and shown.ended is not None and not shown.guest


def label(key: str, rules: object) -> None:
    """Label texts of the displayed run, which has ended; these rules replace earlier ones.

    Raises PromptError if another run is displayed, ConfigError if a rule is wrong.
    """
    shown = displayed()
    if shown.run is None or key != shown.key or not can_label():
        raise PromptError("another run is on the screen now; label its texts again")
    try:
        given = msgspec.convert(rules, list[dict[str, Any]])
        rows = [[rule.get(name) for name in LabelRule._fields] for rule in given]
        checked = msgspec.convert(rows, Labelled.__annotations__["rules"])
    except msgspec.ValidationError as error:
        raise ConfigError(f"the label cannot be used: {error}; give a shorter one") from error
    with shown.locked:
        labelled(shown.run, checked)  # raises if a pattern is wrong
        event = Labelled(len(shown.run.steps), checked)
        shown.run.apply(event)
        if shown.live is not None:
            shown.live.events.append(event)
            return
    events = [*shown.details.events, event]
    st.session_state[_DETAILS][key] = replace(shown.details, events=events)


def can_extend() -> bool:
    """Whether the model of the displayed run can read texts that the run does not have."""
    shown = displayed()
    if not can_label() or shown.run is None or shown.run.started.imported:
        return False
    is_complete = all(path.status != "live" for path in shown.run.paths)
    return is_complete and not connection.is_on_server(shown.model)


def can_repeat() -> bool:
    """Whether the displayed run can be made with more seeds."""
    shown = displayed()
    return can_extend() and shown.run is not None and bool(more_seeds(shown.run))


def extend(key: str, until: float, text: str, repeat: bool = False) -> None:
    """Explore the displayed run until this probability is left, let the model read a text, or make
    the run with more seeds.

    Raises PromptError if another run is displayed.
    """
    shown = displayed()
    if shown.run is None or key != shown.key or not can_extend():
        raise PromptError("another run is on the screen now; ask again")
    started, details = shown.run.started, shown.details
    if text and not started.is_chat and text[0].isalnum():
        text = f" {text}"  # it follows the prompt
    seeds = more_seeds(shown.run) if repeat else ()
    job = extended_run_job(details.events, shown.model, until, text, seeds)
    _start(job, details.source, details.grown_from)


def stop() -> None:
    """Stop the current run, if it is active; only the lecturer can stop the run of a class."""
    if _SLOT.filled and _SLOT.current().guest and _SLOT.current().active:
        notify("Only the lecturer can stop this run. Press Stop following to explore on your own")
    _SLOT.stop()


def open_recording(recording: bundled_runs.Recording) -> None:
    """Show a bundled run from the beginning."""
    events = bundled_runs.events_of(recording)
    ids = {"example": recording.file}
    _open(recording.file, Details(recording.title, recording.description, events, ids))


def open_file(data: bytes, name: str) -> None:
    """Show an uploaded run file. Raises RecordError if it is invalid; the page then stays."""
    key = hashlib.sha256(data).hexdigest()[:16]
    events = record.loads(data, name, rules.current().most_tokens)
    _open(key, Details(name, "Opened from a file.", events))


def open_saved(run_id: str) -> None:
    """Show a run of the store. Raises StoreError or RecordError if it cannot be read."""
    store = default_store()
    if store is None:
        raise StoreError("saved runs are switched off on this server; open a run file instead")
    saved, events = store.load(run_id)
    description = f"Saved on {saved.saved_at[:10]}."
    _open(f"saved-{run_id}", Details(saved.name, description, events, {"saved": run_id}))


def retitle_saved(run_id: str, title: str) -> None:
    """Change the title of a run of the store, if this tab shows that run."""
    shown: dict[str, Details] = st.session_state.get(_DETAILS, {})
    for key, details in shown.items():
        if details.link_ids == {"saved": run_id}:
            shown[key] = replace(details, title=title)


def open_live(live: LiveRun) -> None:
    """Show a run of this process again."""
    _SLOT.stop()
    _show(live_entry(live), _live_details(live))


def open_recorded(key: str, details: Details) -> None:
    """Show a recorded run again, from the beginning."""
    _open(key.removeprefix("recorded-"), details)


def open_guest(run: OpenRun) -> None:
    """Show a run of another tab as it is there; this tab cannot change it."""
    if current().state is not run.state:
        _SLOT.stop()
        details = replace(run.details, autoplay=False, cursor=None)
        _show(replace(run, guest=True), details)


def _follow(link: Link) -> None:
    """Show the run that the link names, or a bundled one; explain what is missing."""
    live = _SLOT.find(link.run)
    example = next((each for each in bundled_runs.recordings() if each.file == link.example), None)
    try:
        if live is not None:
            _show(live_entry(live), _live_details(live))
        elif link.saved:
            open_saved(link.saved)
        else:
            open_recording(example or _opening())
            if link.run or (link.example and example is None):
                kind = "run" if link.run else "example"
                raise LinkError(f"the {kind} of this link is not on this server")
    except EabError as error:
        settings = ". Its settings are set: press Run to make it again" if link.complete else ""
        notify(f"{error}{settings}")
        if not _SLOT.filled:
            open_recording(_opening())
    run = _with_details(_SLOT.current())
    _show(run, replace(run.details, cursor=link.cursor))
    named = {"saved": link.saved} if link.saved else {"example": link.example}
    if link.labels and run.details.link_ids == named:
        try:
            label(run.key, [rule._asdict() for rule in link.labels])
        except EabError as error:
            notify(f"The labels of this link cannot be shown: {error}")


def _opening() -> bundled_runs.Recording:
    """The first bundled run whose model visitors can use here, so that Run works at once."""
    for one in bundled_runs.recordings():
        model = fold_prefix(bundled_runs.events_of(one)).started_run().started.model.name
        if model in (rules.current().models or (model,)) and not model_cache.missing(model):
            return one
    return bundled_runs.recordings()[0]


def _open(key: str, details: Details) -> None:
    """Show a recorded run from the beginning. Raises RecordError if it never started."""
    state = fold_prefix(details.events)
    state.started_run()
    first = not _SLOT.filled
    _SLOT.stop()
    if not first:
        st.query_params.clear()  # these name what the tab showed before
    _show(Entry(f"recorded-{key}", state), replace(details, autoplay=True, cursor=None))


def _start(job: Job[RunFold], source: RunState | None = None, grown_from: str = "") -> None:
    """Start a run; the displayed one stays on the screen until the new one can be drawn."""
    before = _SLOT.start(job)
    entry = _SLOT.current()
    assert entry.live is not None
    st.query_params.from_dict({"run": entry.live.id})
    st.session_state[_DETAILS] = {
        before.key: replace(_with_details(before).details, autoplay=False),
        entry.key: replace(_live_details(entry.live), source=source, grown_from=grown_from),
    }


def _show(entry: Entry[RunFold], details: Details) -> None:
    _SLOT.show(entry)
    st.session_state[_DETAILS] = {entry.key: details}


def _with_details(entry: Entry[RunFold]) -> OpenRun:
    details = st.session_state[_DETAILS][entry.key]
    return OpenRun(entry.key, entry.state, entry.live, entry.guest, details=details)


def _live_details(live: LiveRun) -> Details:
    return Details(live.request.prompt, "", live.events, {"run": live.id})
