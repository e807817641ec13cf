"""A finished run at another threshold or r, recomputed without a model.

The board asks when the user has dragged the threshold line or chosen another growth step; the
settings stay in the session until a reset or another run. It recomputes the picture by itself, from
the events that it is then sent. Here, the run is recomputed for what stands around the board:
tables, downloads, the text of a lesson.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import streamlit as st

from app.state.tab import OpenRun
from eab.board.messages import deciding_forks
from eab.config import AllocationStep
from eab.errors import EabError
from eab.run import fold_prefix

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
