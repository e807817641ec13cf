"""A finished run at another threshold or r, recomputed without a model.

The board asks when the user drags the threshold line or chooses another growth step. The request
stays in the session until a reset or another run (see `eab.share.board_what_if`).
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import streamlit as st

from app.state.tab import OpenRun
from eab.config import AllocationStep
from eab.errors import EabError
from eab.formatting import as_sentence
from eab.share import board_what_if

EXPLORE: Final = "what_if"  # key of what was asked for on Explore's board
_OF_SLIDER: Final = "The slider at the side is the threshold of the next run."
_LAST: Final = "what_if_last"  # the last resimulation of this tab, with its arguments


@dataclass(frozen=True, slots=True)
class WhatIfSettings:
    """Settings with which a run is to be shown."""

    run: str  # the key of the run
    threshold: float | None  # nats; None: as recorded
    r: AllocationStep  # the growth step of the tree cache


@dataclass(frozen=True)
class WhatIfView:
    """What the page shows instead of the recorded run."""

    run: OpenRun
    message: dict[str, Any]  # sent to the board with the run


def ask(
    recorded: OpenRun, key: str, threshold: float | None, r: str | int | None, board: str = EXPLORE
) -> None:
    """Show the run at another threshold (nats) or growth step, for callbacks of a board; None is as
    recorded. Does nothing if `key` is another run's. Each board has its own what-if.
    """
    run = recorded.run
    if run is None or key != recorded.key:
        return
    st.session_state[board] = WhatIfSettings(key, *board_what_if.chosen(run, threshold, r))


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
    if asked.threshold is None and asked.r == recorded.run.started.config.r:
        return None
    view = _resimulated(recorded, asked)
    if board == EXPLORE and asked.threshold is not None and view.run is not recorded:
        words = f"{view.message['notes']['entropy']} {_OF_SLIDER}"
        return replace(
            view, message=view.message | {"notes": view.message["notes"] | {"entropy": words}}
        )
    return view


def possible(recorded: OpenRun) -> bool:
    """Whether the run can be recomputed: it has steps, and its events hold all of its parts."""
    run = recorded.run
    return run is not None and bool(run.steps) and run.started.can_be_recomputed


def growth_steps(recorded: OpenRun) -> list[AllocationStep]:
    """The growth steps to choose from, including the run's own."""
    return [] if recorded.run is None else board_what_if.growth_steps(recorded.run)


def _resimulated(recorded: OpenRun, asked: WhatIfSettings) -> WhatIfView:
    if st.session_state.get(_LAST, (None, None))[0] != asked:
        assert recorded.run is not None
        try:
            result = board_what_if.recomputed(recorded.run, asked.threshold, asked.r)
        except EabError as error:
            notes = {"entropy": as_sentence(f"The run cannot be recomputed: {error}")}
            return WhatIfView(recorded, {"notes": notes})
        st.session_state[_LAST] = (asked, result)
    state, message = st.session_state[_LAST][1]
    details = replace(
        recorded.details,
        title=f"{recorded.details.title}, what-if",
        events=state.started_run().events,
    )
    return WhatIfView(OpenRun(recorded.key, state, details=details), message)
