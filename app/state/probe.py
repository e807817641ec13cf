"""The greedy probe of what Run would run, made before Run is pressed: the value of a rank
threshold, and the entropies around a threshold in nats.

Only loaded models on this machine make probes: a probe must not load a model or cost money.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, cast

import streamlit as st

from app.server.live_run import LiveRun
from app.server.model_cache import KEPT
from app.state import polling
from app.state.status import models, owner, worker
from app.state.tab import OpenRun
from eab.config import BranchingConfig
from eab.engine.job import run_job
from eab.engine.remote import connection
from eab.errors import LimitError
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


def asked(
    model: str, prompt: str, messages: tuple[Message, ...], config: BranchingConfig
) -> ProbeInputs:
    """The inputs of the probe for a run with these settings."""
    probed = replace(
        probe_config(config), policy="fair", threshold_unit="rank", entropy_threshold=1.0
    )
    return ProbeInputs(model, prompt, messages, probed)


def is_of(of: ProbeInputs, shown: OpenRun) -> bool:
    """Whether the run on the screen would have this probe."""
    started = shown.started
    if started is None:
        return False
    config = replace(started.config, kv_limit_mib=of.config.kv_limit_mib)  # it changes no entropy
    return asked(started.model.full_name, started.prompt, started.messages, config) == of


def entropies(of: ProbeInputs, shown: OpenRun) -> Sequence[float] | None:
    """The probe's entropies (nats), from the run on the screen or from a separate probe.

    If there are none yet, a probe is started soon, and the page is redrawn when it is done.
    """
    if shown.run is not None and shown.run.probe and is_of(of, shown):
        return shown.run.probe
    before, live = _held()
    run = live.state.run if live is not None and before == of else None
    if run is not None:
        return run.probe
    is_free = not (shown.active or shown.guest)  # a class views the lecturer's run
    if is_free and (of.prompt or of.messages) and _is_loaded_here(of.model):
        _wait_for(of)
    return None


def leave_to_run(of: ProbeInputs) -> None:
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
        polling.fragment(poll, polling.interval(_POLL_SECONDS))


def _begin(of: ProbeInputs) -> None:
    leave_to_run(of)
    with suppress(LimitError):  # pressing Run explains the limit
        probe = run_job(of.prompt, of.config, of.model, of.messages, probe_only=True)
        live = worker().start(probe, owner())
        st.session_state[_HELD] = (of, live)


def _held() -> tuple[ProbeInputs | None, LiveRun | None]:
    return cast(
        tuple[ProbeInputs | None, LiveRun | None], st.session_state.get(_HELD, (None, None))
    )
