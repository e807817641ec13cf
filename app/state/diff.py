"""Which two runs the page Compare shows, and the independent samples that it has made."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

import streamlit as st

from app.server import bundled_runs
from app.server.live_run import LiveRun
from app.state import process, tab
from eab import record
from eab.analysis.diff import Budget, independent_config
from eab.run import Run, RunFold, fold

Source = Literal["explore", "independent", "file"] | bundled_runs.Recording
EXPLORE: Final = "explore"
INDEPENDENT: Final = "independent"
FILE: Final = "file"
_LIVE: Final = "contrast_live"
_FILES: Final = "contrast_files"
_IN_URL: Final = "samples"


@dataclass(frozen=True)
class Chosen:
    """One side of the page: a run that does not change, what it is called, and a key that tells it
    from others.
    """

    key: str
    title: str
    run: Run


def sources(with_independent: bool) -> list[Source]:
    """What can be chosen for a side."""
    made: list[Source] = [INDEPENDENT] if with_independent else []
    return [*made, EXPLORE, FILE, *bundled_runs.recordings()]


def title_of(source: Source) -> str:
    """What a source is called in the list."""
    if isinstance(source, bundled_runs.Recording):
        return f"Example: {source.title}"
    return {
        EXPLORE: "The run on Explore",
        FILE: "A run file",
        INDEPENDENT: "Independent sampling, same budget",
    }[source]


def chosen(source: Source, side: str) -> Chosen | None:
    """The run of this source, if there is one that has started and no longer grows."""
    if isinstance(source, bundled_runs.Recording):
        return Chosen(source.file, source.title, fold(bundled_runs.events_of(source)))
    if source == FILE:
        return cast(Chosen | None, st.session_state.get(_FILES, {}).get(side))
    if source == INDEPENDENT:
        live = live_run()
        return (
            Chosen(live.id, "Independent sampling", live.state.run)
            if live is not None
            and not live.active
            and live.state.run is not None
            and live.state.run.steps
            else None
        )
    picture = tab.shown().picture
    if picture.run is None or (picture.live is not None and picture.live.active):
        return None
    return Chosen(picture.key, picture.title or "The run on Explore", picture.run)


def named_in_url(side: str, otherwise: Source) -> Source:
    """The source that the URL names for this side, as after a reload; a file is not in it."""
    named = st.query_params.get(side, "")
    return next(
        (source for source in sources(side == "b") if _name(source) == named and source != FILE),
        otherwise,
    )


def note_in_url(choices: Mapping[str, Source]) -> None:
    """Write the source of each side into the URL, and where the samples and the run on Explore are
    found.
    """
    wanted = {side: _name(source) for side, source in choices.items()}
    wanted |= tab.shown().place if EXPLORE in choices.values() else {}
    live = live_run()
    tab.note_in_url(wanted | ({_IN_URL: live.id} if live is not None else {}))


def _name(source: Source) -> str:
    return source.file if isinstance(source, bundled_runs.Recording) else source


def take_file(data: bytes, name: str, side: str) -> None:
    """Read an uploaded run file for a side. RecordError leaves the other one as it was."""
    run = fold(record.loads(data, name))
    files = st.session_state.setdefault(_FILES, {})
    files[side] = Chosen(hashlib.sha256(data).hexdigest()[:16], name, run)


def live_run() -> LiveRun | None:
    """The independent samples of this tab, being made or made; after a reload those that the URL
    names.
    """
    if _LIVE not in st.session_state:
        found = process.worker().find(st.query_params.get(_IN_URL, ""), RunFold)
        st.session_state[_LIVE] = (
            found if found is not None and found.config.policy == "independent" else None
        )
    return cast(LiveRun | None, st.session_state[_LIVE])


def going(choices: Collection[Source]) -> LiveRun | None:
    """What is still being made of what is chosen: the samples, or the run on Explore."""
    explore = tab.shown().live if EXPLORE in choices else None
    return next((live for live in (live_run(), explore) if live is not None and live.active), None)


def start(like: Run, budget: Budget) -> None:
    """Begin independent sampling at the budget of this run, with its model; samples still being
    made are stopped.
    """
    stop()
    config = independent_config(like, budget)
    started = like.started
    taken = started.prompt_tokens[len(started.prompt_tokens) - started.continued :]
    st.session_state[_LIVE] = process.worker().grow(
        started, taken, config, started.model.name, process.owner()
    )


def stop() -> None:
    """Stop the samples that are being made; what they have stays."""
    live = live_run()
    if live is not None:
        live.stop()
