"""A finished run at another threshold or r, at once and without a model: two sliders, and what they
come to.

eab.what_if.resimulate needs torch for its tensors without content; it is imported when a slider is
moved.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app.state.tab import Shown
from app.widgets.markdown import plain
from eab.config import AUTO, R_STEPS, THRESHOLD_SCALES, AllocationStep
from eab.errors import EabError
from eab.run import fold

_LAST: Final = "reread"  # the last reading of this tab, with what it was made from
_STEP: Final = 0.01  # nats


@dataclass(frozen=True)
class Again:
    """What to show instead of the run, what the board is told besides, and words on it or on why it
    cannot be read.
    """

    shown: Shown
    message: dict[str, Any]
    said: str
    problem: str = ""


def again_of(shown: Shown) -> Again | None:
    """The run as its sliders stand, which need not be drawn yet; None if they stand as recorded, or
    it has none.
    """
    recorded = _as_recorded(shown)
    if recorded is None:
        return None
    threshold, r = (st.session_state.setdefault(key, value) for key, value in recorded.items())
    changed = [now != before for now, before in zip((threshold, r), recorded.values(), strict=True)]
    return _again(shown, threshold if changed[0] else None, r) if any(changed) else None


def controls_of(shown: Shown, again: Again | None, place: DeltaGenerator) -> None:
    """Draw the sliders for a run that no longer changes, and say what came of them."""
    started, recorded = shown.started, _as_recorded(shown)
    if started is None or recorded is None:
        return
    threshold_key, r_key = recorded
    left, middle, back, on = place.columns([5, 4, 2, 3], vertical_alignment="bottom")
    left.slider(
        "This run at another threshold (nats)",
        0.0,
        _highest_threshold(shown),
        step=_STEP,
        key=threshold_key,
        disabled=not can_be_dragged(shown),
        help="Higher: the tree is pruned at once, without the model. Lower: marks where it would fork.",
    )
    middle.select_slider(
        "and another r",
        _r_steps(started.config.r),
        key=r_key,
        help="What the KV cache would copy and keep spare. The texts do not change.",
    )
    back.button(
        "As it was",
        on_click=st.session_state.update,
        args=(recorded,),
        disabled=again is None,
        width="stretch",
    )
    taken = on.button(
        "Take it for a run",
        on_click=_set_sidebar,
        args=(threshold_key,),
        disabled=st.session_state[threshold_key] == recorded[threshold_key],
        width="stretch",
        help="Sets the threshold in the sidebar; Run then asks the model.",
    )
    if taken:
        st.rerun()  # the sidebar is not part of the fragment that this is in
    if again is not None:
        (place.error if again.problem else place.caption)(plain(again.problem or again.said))
        return
    ways = (
        "Drag the dashed line in the entropy trace, or move a slider,"
        if can_be_dragged(shown)
        else "Move r"
    )
    place.caption(f"As recorded. {ways} to read this run again; nothing runs.")


def can_be_dragged(shown: Shown) -> bool:
    """Whether the threshold of this run has a slider that moves."""
    run = shown.run
    return run is not None and bool(run.steps) and run.started.config.policy != "original"


def drag(shown: Shown, run: str, threshold: float) -> None:
    """Set the slider of this run, if it is the run that was dragged; for a callback."""
    if run == shown.key:
        at_most = _highest_threshold(shown)
        st.session_state[f"again_threshold_{run}"] = round(min(max(threshold, 0.0), at_most), 2)


def _as_recorded(shown: Shown) -> dict[str, Any] | None:
    """By its key in the session what each slider of this run starts with: threshold and r; None if
    it has none.
    """
    if shown.run is None or not shown.run.steps:
        return None
    started = shown.run.started
    threshold = round(started.threshold_nats, 2)
    return {f"again_threshold_{shown.key}": threshold, f"again_r_{shown.key}": started.config.r}


def _again(shown: Shown, threshold: float | None, r: AllocationStep) -> Again:
    """Read the run again."""
    from eab.figures.what_if import exactness_sentence, marks, rows_sentence, tree_change_sentence
    from eab.what_if.resimulate import resimulate

    key = (shown.key, threshold, r)
    if st.session_state.get(_LAST, (None, None))[0] != key:
        try:
            st.session_state[_LAST] = (key, resimulate(shown.events, threshold, r))
        except EabError as error:
            return Again(shown, {}, "", str(error))
    reading = st.session_state[_LAST][1]
    run_before, run = shown.run, fold(reading.events)
    assert run_before is not None
    sentences = [tree_change_sentence(run_before, run), exactness_sentence(run, reading.unknowns)]
    if r != run_before.started.config.r:
        sentences.append(rows_sentence(shown.events, reading.events))
    message = {
        "what_if": f"{threshold} {r}",
        "unknowns": marks(run, reading.unknowns),
        "autoplay": False,
    }
    read = replace(
        shown, title=f"{shown.title}, re-read", events=reading.events, recorded=run, live=None
    )
    return Again(read, message, " ".join(["Read again without the model.", *sentences]))


def _r_steps(recorded: AllocationStep) -> list[AllocationStep]:
    numbers: set[int] = {r for r in (*R_STEPS, recorded) if r != AUTO}
    return [AUTO, *sorted(numbers)]


def _highest_threshold(shown: Shown) -> float:
    """Above every entropy of the run: there it does not fork."""
    run = shown.run
    assert run is not None
    highest = max((token.entropy for path in run.paths for token in path.tokens), default=0.0)
    return max(round(run.started.threshold_nats, 2), math.ceil(highest / _STEP) * _STEP) + _STEP


def _set_sidebar(threshold_key: str) -> None:
    threshold = st.session_state[
        threshold_key
    ]  # now: what it was when the button was drawn may be old
    st.session_state.set_threshold_unit = "nats"
    st.session_state.set_threshold_nats = THRESHOLD_SCALES["nats"].widget.nearest(threshold)
