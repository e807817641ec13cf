"""What other settings would do: before Run is pressed, the greedy probe of what it would run; and a
finished run at another threshold or r, recomputed without a model. After a run that shows little,
it is suggested what to change.

The probe gives the value of a rank threshold, and the entropies around a threshold in nats. Only
loaded models on this machine make probes: a probe must not load a model or cost money.

The board asks for a what-if when the user has dragged the threshold line or chosen another growth
step; the settings stay in the session until a reset or another run. It recomputes the picture by
itself, from the events that it is then sent. Here, the run is recomputed for what stands around the
board: tables, downloads, the text of a lesson.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import streamlit as st

from app.server import rules
from app.server.model_cache import KEPT
from app.server.tasks import LiveRun
from app.state import session
from app.state.session import models, owner, worker
from app.state.tab import OpenRun
from eab.board.messages import deciding_forks
from eab.config import AllocationStep, BranchingConfig
from eab.engine.job import run_job
from eab.engine.remote import connection
from eab.errors import EabError, LimitError
from eab.formatting import apart
from eab.run import RunState, fold_prefix
from eab.run.events import Message
from eab.run.threshold import probe_config

_HELD: Final = "probe"
_POLL_SECONDS: Final = 0.5


@dataclass(frozen=True)
class ProbeInputs:
    """What a probe depends on; the config has the probe's settings."""

    model: str
    prompt: str
    messages: tuple[Message, ...]
    config: BranchingConfig


def probe_of(
    model: str, prompt: str, messages: tuple[Message, ...], config: BranchingConfig
) -> ProbeInputs:
    """The inputs of the probe for a run with these settings."""
    probed = replace(
        probe_config(config), policy="fair", threshold_unit="rank", entropy_threshold=1.0
    )
    return ProbeInputs(model, prompt, messages, probed)


def is_probe_of(of: ProbeInputs, shown: OpenRun) -> bool:
    """Whether the run on the screen would have this probe."""
    started = shown.started
    if started is None:
        return False
    config = replace(started.config, kv_limit_mib=of.config.kv_limit_mib)  # it changes no entropy
    return probe_of(started.model.full_name, started.prompt, started.messages, config) == of


def probe_entropies(of: ProbeInputs, shown: OpenRun) -> Sequence[float] | None:
    """The probe's entropies (nats), from the run on the screen or from a separate probe.

    If there are none yet, a probe is started soon, and the page is redrawn when it is done.
    """
    if shown.run is not None and shown.run.probe and is_probe_of(of, shown):
        return shown.run.probe
    before, live = _held()
    run = live.state.run if live is not None and before == of else None
    if run is not None:
        return run.probe
    is_free = not (shown.active or shown.guest)  # a class views the lecturer's run
    if is_free and (of.prompt or of.messages) and _is_loaded_here(of.model):
        _wait_for(of)
    return None


def leave_probe_to_run(of: ProbeInputs) -> None:
    """Make no probe with these inputs, because a run makes it, and stop the one in progress. If the
    run is stopped before it has its probe, none follows.
    """
    _, live = _held()
    if live is not None:
        live.stop()
    st.session_state[_HELD] = (of, None)


def _is_loaded_here(model: str) -> bool:
    if connection.is_on_server(model):
        return False
    return model in KEPT or models().peek(model) is not None


def _wait_for(of: ProbeInputs) -> None:
    """Start the probe at the first poll, because the typed prompt may be run in the next moment;
    redraw the page when the probe is done.
    """
    is_drawn = False

    def poll() -> None:
        nonlocal is_drawn
        before, live = _held()
        if not is_drawn:
            is_drawn = True
        elif before != of:
            if models().peek(of.model) is not None:
                _begin(of)
        elif live is not None:
            live.mark_watched()
            if live.state.run is not None:
                st.rerun()

    before, live = _held()
    if before != of or (live is not None and live.active):
        session.fragment(poll, session.interval(_POLL_SECONDS))


def _begin(of: ProbeInputs) -> None:
    leave_probe_to_run(of)
    with suppress(LimitError):  # pressing Run explains the limit
        probe = run_job(of.prompt, of.config, of.model, of.messages, probe_only=True)
        live = worker().start(probe, owner())
        st.session_state[_HELD] = (of, live)


def _held() -> tuple[ProbeInputs | None, LiveRun | None]:
    return cast(
        tuple[ProbeInputs | None, LiveRun | None], st.session_state.get(_HELD, (None, None))
    )


EXPLORE: Final = "what_if"  # key of what was asked for on Explore's board
_LAST: Final = "what_if_last"  # the last resimulation of this tab, with its arguments


@dataclass(frozen=True, slots=True)
class WhatIfSettings:
    """Settings with which a run is to be shown."""

    run: str  # the key of the run
    threshold: float | None  # nats; None: as recorded
    r: AllocationStep | None  # the growth step of the tree cache; None: as recorded


@dataclass(frozen=True)
class WhatIfView:
    """What the page shows instead of the recorded run."""

    run: OpenRun
    message: dict[str, Any]  # sent to the board with the recorded run


def ask(
    recorded: OpenRun,
    key: str,
    threshold: float | None,
    r: AllocationStep | None,
    board: str = EXPLORE,
) -> None:
    """Show the run at another threshold (nats) or growth step, for callbacks of a board; None is as
    recorded. Does nothing if `key` is another run's. Each board has its own what-if.
    """
    started = recorded.started
    if started is None or key != recorded.key:
        return
    if threshold is not None:
        threshold = round(max(threshold, 0.0), 2)
    same = threshold in (None, round(started.threshold_nats, 2)) and r in (None, started.config.r)
    st.session_state[board] = None if same else WhatIfSettings(key, threshold, r)


def asked_of(key: str, board: str = EXPLORE) -> WhatIfSettings | None:
    """What was asked for on a board that shows the run with this key; None if nothing was."""
    asked: WhatIfSettings | None = st.session_state.get(board)
    return asked if asked is not None and asked.run == key else None


def ask_again(asked: WhatIfSettings | None, board: str = EXPLORE) -> None:
    """Show what another tab asked for; None: as recorded."""
    st.session_state[board] = asked


def view_of(recorded: OpenRun, board: str = EXPLORE) -> WhatIfView | None:
    """The run with the settings asked for on a board; None if they are its own."""
    asked = asked_of(recorded.key, board)
    if recorded.run is None or asked is None:
        return None
    if st.session_state.get(_LAST, (None, None))[0] != asked:
        st.session_state[_LAST] = asked, _recomputed(recorded, asked)
    view: WhatIfView = st.session_state[_LAST][1]
    return view


def possible(recorded: OpenRun) -> bool:
    """Whether the run can be recomputed: it has steps, and its events hold all of its parts."""
    run = recorded.run
    return run is not None and bool(run.steps) and run.started.can_be_recomputed


def _recomputed(recorded: OpenRun, asked: WhatIfSettings) -> WhatIfView:
    from eab.engine.what_if.resimulate import resimulate  # needs torch
    from eab.share.exports import packed_events

    assert recorded.run is not None
    settings: dict[str, Any] = {"threshold": asked.threshold, "r": asked.r}
    message = {"recorded": packed_events(recorded.run), "asked": settings}
    try:
        state = fold_prefix(resimulate(recorded.run.events, asked.threshold, asked.r).events)
    except EabError:  # the board says why
        return WhatIfView(recorded, message)
    run = state.started_run()
    details = replace(
        recorded.details, title=f"{recorded.details.title}, what-if", events=run.events
    )
    settings["deciding"] = deciding_forks(run)
    return WhatIfView(OpenRun(recorded.key, state, details=details), message)


EARLY: Final = 1 / 3  # share of the steps; a path limit before it hides much of the tree


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggested change, offered as a button that runs the prompt with it."""

    why: str  # a sentence
    label: str
    widgets: dict[str, Any]  # values by widget key, without `set_`


def suggestion(run: RunState) -> Suggestion | None:
    """What to change after a run without a fork, with an early path limit, or without enough
    memory; None if nothing needs to change, or the run has not ended.
    """
    if run.ended is None or run.started.imported:
        return None
    config = run.started.config
    if run.ended.reason == "failed":
        return _other("", "max_paths", config.max_paths // 2, "paths") or _other(
            "", "max_new_tokens", config.max_new_tokens // 2, "new tokens"
        )
    if not run.forks():
        return _lower_threshold(run, run.started.threshold_nats)
    first = min((path.limited_steps[0] for path in run.paths if path.limited_steps), default=None)
    more = min(2 * config.max_paths, rules.current().max_paths)
    if first is None or first >= EARLY * len(run.steps) or more <= config.max_paths:
        return None
    return _other(f"Path limit reached at step {first}.", "max_paths", more, "paths")


def _other(why: str, name: str, value: int, unit: str) -> Suggestion | None:
    return Suggestion(why, f"Run with {value} {unit}", {name: value}) if value else None


def _lower_threshold(run: RunState, threshold: float) -> Suggestion | None:
    """Suggest the highest entropy of this run as the threshold (nats), rounded down to a step of
    the slider.
    """
    value = math.floor(run.highest_entropy * 100) / 100
    if not 0 < value < threshold:
        return None
    below, above = apart(run.highest_entropy, threshold)
    return Suggestion(
        f"No fork: the entropy stayed below {above} nats; its highest value was {below}.",
        f"Run at {value:.2f} nats",
        {"threshold_unit": "nats", "threshold_nats": value},
    )
