"""The runs of this tab so far, the two that Compare shows, and the independent samples for it."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, cast

import streamlit as st

from app.server import rules
from app.server.tasks import LiveRun
from app.state import tab
from app.state.session import notify, worker
from app.state.slot import Slot, has_ended_with_texts
from app.state.slot import note_in_url as note_parameters
from app.state.tab import Details, OpenRun
from eab.analysis.run_comparison import Budget, independent_config, same_prompt
from eab.board.still import thumbnail
from eab.config import SETTINGS, BranchingConfig
from eab.engine.job import continued_run_job
from eab.errors import LinkError
from eab.lessons import bundled_runs
from eab.run import RunFold, RunState, fold, record

Source = Literal["explore", "independent", "file", "pinned"] | bundled_runs.Recording
EXPLORE: Final = "explore"
INDEPENDENT: Final = "independent"
FILE: Final = "file"
PINNED: Final = "pinned"  # the first pinned run for A, the second for B
_FILES: Final = "diff_files"
_SIDES: Final = ("a", "b")
_PINNED_TITLES: Final = {"a": "The first pinned run", "b": "The second pinned run"}


SAMPLES: Final = Slot(
    "samples",
    RunFold,
    bundled_runs.samples,
    accepts=lambda live: live.request.config.policy == "independent",
    drawable=has_ended_with_texts,
)


@dataclass(frozen=True)
class Side:
    """One side of the comparison."""

    key: str  # identifies the run for the board
    title: str
    run: RunState  # no longer changes


def sources(with_independent: bool) -> list[Source]:
    """The sources that can be chosen for a side."""
    sampled: list[Source] = [INDEPENDENT] if with_independent else []
    both: list[Source] = [PINNED] if len(pinned()) == MAX_PINNED else []
    return [*sampled, EXPLORE, *both, FILE, *bundled_runs.recordings()]


def choose_pinned() -> None:
    """Choose the two pinned runs as A and B."""
    for side in _SIDES:
        st.session_state[f"diff_{side}"] = PINNED


def title_of(source: Source, side: str) -> str:
    """The title of a source in a side's list."""
    if isinstance(source, bundled_runs.Recording):
        return f"Example: {source.title}"
    return {
        EXPLORE: "The run on Explore",
        FILE: "A run file",
        INDEPENDENT: "Independent sampling, same budget",
        PINNED: _PINNED_TITLES[side],
    }[source]


def side_of(source: Source, side: str, like: Side | None = None) -> Side | None:
    """The run of a source, if it has ended; independent samples must have the prompt of `like`."""
    if isinstance(source, bundled_runs.Recording):
        return Side(source.file, source.title, fold(bundled_runs.events_of(source)))
    if source == PINNED:
        return _pinned(side)
    if source == FILE:
        return cast(Side | None, st.session_state.get(_FILES, {}).get(side))
    return _sampled(like) if source == INDEPENDENT else _explored()


def _pinned(side: str) -> Side | None:
    past = pinned()[_SIDES.index(side)]
    run = past.run
    return (
        Side(past.key, past.details.title or _PINNED_TITLES[side], run) if run is not None else None
    )


def _sampled(like: Side | None) -> Side | None:
    displayed = SAMPLES.displayed()
    run = displayed.state.run
    if displayed.active or run is None or like is None or not same_prompt(like.run, run):
        return None
    recorded = "" if displayed.live is not None else " (recorded)"
    return Side(displayed.key, f"Independent sampling{recorded}", run)


def _explored() -> Side | None:
    displayed = tab.displayed()
    if displayed.run is None or displayed.active:
        return None
    return Side(displayed.key, displayed.details.title or "The run on Explore", displayed.run)


def sources_in_url(defaults: Mapping[str, Source]) -> dict[str, Source]:
    """The sources that the URL names, or the defaults; a URL never names a file."""
    chosen, unknown = dict[str, Source](), []
    for side, default in defaults.items():
        named = {_name(source): source for source in sources(side == "b")}
        source = named.get(st.query_params.get(side, _name(default)))
        unknown += [side.upper()] if source is None else []
        chosen[side] = default if source in (None, FILE) else source
    if unknown:
        runs = "Runs A and B" if unknown[1:] else f"Run {unknown[0]}"
        notify(f"{runs} of this link {'are' if unknown[1:] else 'is'} not on this server")
    return chosen


def note_in_url(choices: Mapping[str, Source]) -> None:
    """Write both sources into the URL, and how a reload finds the samples and Explore's run."""
    parameters = {side: _name(source) for side, source in choices.items()}
    parameters |= tab.current().details.link_ids if EXPLORE in choices.values() else {}
    note_parameters(parameters | SAMPLES.in_url())


def _name(source: Source) -> str:
    return source.file if isinstance(source, bundled_runs.Recording) else source


def read_file(data: bytes, name: str, side: str) -> None:
    """Read a side's uploaded run file. Raises RecordError if it is invalid; the old one stays."""
    run = fold(record.loads(data, name, rules.current().most_tokens))
    files = st.session_state.setdefault(_FILES, {})
    files[side] = Side(hashlib.sha256(data).hexdigest()[:16], name, run)


def active(choices: Collection[Source]) -> LiveRun | None:
    """The chosen run that is still active: the samples, or the run on Explore."""
    explored = tab.current().live if EXPLORE in choices else None
    candidates = (SAMPLES.current().live, explored)
    return next((live for live in candidates if live is not None and live.active), None)


def start_sampling(like: RunState, budget: Budget) -> None:
    """Start independent sampling with the budget of a run; stop any earlier sampling."""
    config = independent_config(like, budget)
    started = like.started
    continued = started.continued_tokens
    SAMPLES.start(continued_run_job(started, continued, config, started.model.full_name))


MAX_RUNS: Final = 12
MAX_PINNED: Final = 2
_RUNS: Final = "past_runs"
_PINNED: Final = "pinned_runs"


@dataclass(frozen=True)
class PastRun:
    """An ended run of this tab."""

    key: str
    # without the events of a live run, so that the server may forget them
    details: Details
    prompt: str
    config: BranchingConfig
    picture: str  # its tree as a small SVG
    live_id: str = ""  # empty for a recorded run

    @property
    def live(self) -> LiveRun | None:
        """The run in this process; None if it was recorded, or the server has forgotten it."""
        return worker().find(self.live_id, RunFold) if self.live_id else None

    @property
    def run(self) -> RunState | None:
        """The run; None if the server has forgotten it."""
        if not self.live_id:
            return fold(self.details.events)
        return self.live.state.run if self.live is not None else None


def note(opened: OpenRun) -> None:
    """Remember a run that no longer changes; drop the oldest unpinned run of too many."""
    run = opened.run
    if run is None or opened.key in {past.key for past in runs()}:
        return
    live = opened.live
    past = PastRun(
        opened.key,
        opened.details if live is None else replace(opened.details, events=(), source=None),
        run.started.prompt,
        run.started.config,
        thumbnail(run),
        live.id if live is not None else "",
    )
    kept = [past, *runs()]
    if len(kept) > MAX_RUNS:
        kept.remove(next(run for run in reversed(kept) if run.key not in _pinned_keys()))
    st.session_state[_RUNS] = kept


def open_again(past: PastRun) -> None:
    """Show a run of this tab again. Raises LinkError if the server has forgotten it."""
    if past.live_id:
        live = past.live
        if live is None:
            raise LinkError("this run is no longer on the server; press Run to make it again")
        tab.open_live(live)
    else:
        tab.open_recorded(past.key, past.details)


def runs() -> list[PastRun]:
    """The runs of this tab, newest first."""
    return cast(list[PastRun], st.session_state.get(_RUNS, []))


def named(key: str) -> PastRun | None:
    """The run of this tab with this key; None if it is not remembered."""
    return next((past for past in runs() if past.key == key), None)


def pinned() -> list[PastRun]:
    """The pinned runs in the order of pinning; at most MAX_PINNED."""
    by_key = {past.key: past for past in runs()}
    return [by_key[key] for key in _pinned_keys()]


def toggle_pin(key: str) -> None:
    """Pin or unpin a run; a third pin unpins the run that was pinned first."""
    keys = _pinned_keys()
    changed = [other for other in keys if other != key] if key in keys else [*keys, key]
    st.session_state[_PINNED] = changed[-MAX_PINNED:]


def differing_settings() -> list[str]:
    """The settings that differ between the runs."""
    return [name for name in SETTINGS if len({getattr(past.config, name) for past in runs()}) > 1]


def _pinned_keys() -> list[str]:
    return cast(list[str], st.session_state.get(_PINNED, []))
