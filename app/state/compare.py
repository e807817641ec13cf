"""The two runs that the Compare page shows, and the independent samples that it makes."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

import streamlit as st

from app.server import rules
from app.server.live_run import LiveRun
from app.state import history, tab
from app.state.slot import Slot, has_ended_with_texts
from app.state.slot import note_in_url as note_parameters
from app.state.status import notify
from eab import record
from eab.analysis.independent_texts import Budget, independent_config
from eab.analysis.merged_runs import same_prompt
from eab.engine.job import continued_run_job
from eab.lessons import bundled_runs
from eab.run import RunFold, RunState, fold

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
    pinned: list[Source] = [PINNED] if len(history.pinned()) == history.MAX_PINNED else []
    return [*sampled, EXPLORE, *pinned, FILE, *bundled_runs.recordings()]


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
    past = history.pinned()[_SIDES.index(side)]
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


def source_in_url(side: str, default: Source) -> Source:
    """The source that the URL names for a side, or the default; a URL never names a file."""
    name = st.query_params.get(side, _name(default))
    named = {_name(source): source for source in sources(side == "b")}
    if name not in named:
        notify(f"Run {side.upper()} of this link is not on this server")
    source = named.get(name, default)
    return default if source == FILE else source


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
