"""A finished run at another threshold or r, recomputed at once and without a model.

Two sliders, and what comes of them. `eab.what_if.resimulate` needs torch for its tensors without
content; it is imported when a slider is moved.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app.state.slot import Entry
from app.state.tab import OpenRun
from app.widgets.markdown import plain
from eab.config import AUTO, R_STEPS, THRESHOLD_SCALES, AllocationStep
from eab.errors import EabError
from eab.run import fold_prefix

_LAST: Final = "what_if"  # the last resimulation of this tab, with its arguments
_STEP: Final = 0.01  # nats


@dataclass(frozen=True)
class WhatIfView:
    """What the page shows instead of the recorded run.

    Attributes:
        run: The recomputed run.
        message: What the board is sent besides the run.
        sentences: What changed, and whether it is exact; empty if there is a problem.
        problem: Why the run cannot be recomputed; empty if it can.
    """

    run: OpenRun
    message: dict[str, Any]
    sentences: str
    problem: str = ""


def view_of(recorded: OpenRun) -> WhatIfView | None:
    """The run at the values of its sliders.

    Returns:
        None if the sliders stand as recorded, or if the run has none.
    """
    defaults = _defaults(recorded)
    if defaults is None:
        return None
    # Before the sliders are drawn for the first time, and after Streamlit dropped their keys, there
    # are no values in the session.
    threshold, r = (st.session_state.get(key, value) for key, value in defaults.items())
    moved = [now != then for now, then in zip((threshold, r), defaults.values(), strict=True)]
    return _resimulated(recorded, threshold if moved[0] else None, r) if any(moved) else None


def draw_controls(recorded: OpenRun, view: WhatIfView | None, container: DeltaGenerator) -> None:
    """Draw the sliders of a run that no longer changes, and what came of them.

    Args:
        recorded: The run as it was recorded.
        view: What `view_of` returned for it.
        container: Where to draw.
    """
    started, defaults = recorded.started, _defaults(recorded)
    if started is None or defaults is None:
        return
    threshold_key, r_key = defaults
    left, middle, reset, use = container.columns([5, 4, 2, 3], vertical_alignment="bottom")
    # With `value`, a browser whose slider lost its key falls back to what was recorded, not to the
    # minimum.
    threshold = left.slider(
        "What if? Threshold (nats)",
        0.0,
        _highest_threshold(recorded),
        value=defaults[threshold_key],
        step=_STEP,
        key=threshold_key,
        disabled=not can_be_dragged(recorded),
        help="Higher: branches are pruned at once, without the model. Lower: marks where the run "
        "would fork.",
    )
    middle.select_slider(
        "Growth step r",
        _r_steps(started.config.r),
        value=defaults[r_key],
        key=r_key,
        help="What the KV cache would copy and keep as spare rows. The texts do not change.",
    )
    reset.button(
        "Reset",
        on_click=st.session_state.update,
        args=(defaults,),
        disabled=view is None,
        width="stretch",
        key="what_if_reset",
        help="Back to the recorded run.",
    )
    used = use.button(
        "Use this threshold",
        on_click=_set_sidebar,
        args=(threshold_key, defaults[threshold_key]),
        disabled=threshold == defaults[threshold_key],
        width="stretch",
        help="Sets the threshold in the sidebar; Run then makes the run with the model.",
    )
    if used:
        st.rerun()  # the sidebar is not part of this fragment
    if view is not None and view.problem:
        container.error(plain(view.problem))
    else:
        container.caption(plain(view.sentences) if view is not None else _hint(recorded))


def can_be_dragged(recorded: OpenRun) -> bool:
    """Whether the threshold of this run can be changed."""
    run = recorded.run
    return run is not None and bool(run.steps) and run.started.config.policy != "original"


def set_threshold(recorded: OpenRun, key: str, threshold: float) -> None:
    """Move the threshold slider; for a callback of the board.

    Args:
        recorded: The run on the page.
        key: The key of the run whose threshold line was dragged. If it is another run, nothing
            happens.
        threshold: Where the line is now, in nats.
    """
    if key == recorded.key:
        highest = _highest_threshold(recorded)
        st.session_state[_threshold_key(recorded)] = round(min(max(threshold, 0.0), highest), 2)


def _threshold_key(recorded: OpenRun) -> str:
    return f"what_if_threshold_{recorded.key}"


def _defaults(recorded: OpenRun) -> dict[str, Any] | None:
    """Keys of both sliders, with the recorded values; None if the run has no sliders."""
    if recorded.run is None or not recorded.run.steps:
        return None
    started = recorded.run.started
    return {
        _threshold_key(recorded): round(started.threshold_nats, 2),
        f"what_if_r_{recorded.key}": started.config.r,
    }


def _resimulated(recorded: OpenRun, threshold: float | None, r: AllocationStep) -> WhatIfView:
    from eab.figures.what_if import exactness_sentence, marks, rows_sentence, tree_change_sentence
    from eab.what_if.resimulate import resimulate

    arguments = (recorded.key, threshold, r)
    if st.session_state.get(_LAST, (None, None))[0] != arguments:
        try:
            st.session_state[_LAST] = (arguments, resimulate(recorded.events, threshold, r))
        except EabError as error:
            return WhatIfView(recorded, {}, "", str(error))
    result = st.session_state[_LAST][1]
    state = fold_prefix(result.events)
    run_before, run = recorded.run, state.run
    assert run_before is not None
    assert run is not None
    sentences = [tree_change_sentence(run_before, run), exactness_sentence(run, result.unknowns)]
    if r != run_before.started.config.r:
        sentences.append(rows_sentence(recorded.events, result.events))
    message = {
        "what_if": f"{threshold} {r}",
        "unknowns": marks(run, result.unknowns),
        "autoplay": False,
    }
    details = replace(recorded.details, title=f"{recorded.title}, what-if", events=result.events)
    changed = OpenRun(Entry(recorded.key, state), details)
    return WhatIfView(changed, message, " ".join(["Recomputed from the recording.", *sentences]))


def _hint(recorded: OpenRun) -> str:
    if can_be_dragged(recorded):
        return "Drag the dashed line to try another threshold. Instant: the model is not run again."
    return "Move r to try another growth step. Instant: the model is not run again."


def _r_steps(recorded: AllocationStep) -> list[AllocationStep]:
    numbers: set[int] = {r for r in (*R_STEPS, recorded) if r != AUTO}
    return [AUTO, *sorted(numbers)]


def _highest_threshold(recorded: OpenRun) -> float:
    """A threshold (nats) above every entropy of the run: there it does not fork."""
    run = recorded.run
    assert run is not None
    highest = max((token.entropy for path in run.paths for token in path.tokens), default=0.0)
    return max(round(run.started.threshold_nats, 2), math.ceil(highest / _STEP) * _STEP) + _STEP


def _set_sidebar(threshold_key: str, recorded: float) -> None:
    # Read it here: its value when the button was drawn may be outdated.
    threshold = st.session_state.get(threshold_key, recorded)
    st.session_state.set_threshold_unit = "nats"
    st.session_state.set_threshold_nats = THRESHOLD_SCALES["nats"].widget.nearest(threshold)
