"""The slider of the entropy threshold, and the entropies around it."""

from collections.abc import Sequence
from typing import Final

import streamlit as st

from app.state import what_if
from app.state.tab import OpenRun
from app.widgets import entropy_histogram, presets
from app.widgets.setting_widgets import KEPT, help_of, mark
from eab.config import SETTINGS
from eab.formatting import counted
from eab.run.threshold import quantile_in_nats
from eab.threshold_scales import THRESHOLD_SCALES, ThresholdUnit

_LABEL: Final = SETTINGS["entropy_threshold"].label
_NATS: Final = THRESHOLD_SCALES["nats"].widget
_SHOWN: Final = "threshold_shown"  # the slider's values before and after the page moved it


def draw(
    defaults: dict[str, object], shown: OpenRun | None = None, probe: Sequence[float] | None = None
) -> None:
    """Draw the slider and, below it, where the threshold stands among entropies of this model.

    While the threshold is a quantile, the slider shows its value in nats; moving the slider sets
    the threshold in nats. The entropies (nats) are those of the run shown, if Run would give the
    same ones, or else those of a greedy probe.
    """
    unit: ThresholdUnit = st.session_state.set_threshold_unit
    if unit == "normalised":
        _slider(unit, mark("entropy_threshold", f"set_threshold_{unit}", defaults))
        st.caption("Forks at this share of ln V, the largest possible entropy.")
        return
    nats = 0.0
    if unit == "quantile" and probe is not None:
        nats = quantile_in_nats(probe, st.session_state.set_threshold_quantile)
        _show(_NATS.nearest(round(nats, 2)))
    value = _slider("nats", "" if unit == "quantile" else " ● by hand")
    if nats > _NATS.high:
        value = nats
        st.caption(f"The threshold is {nats:.2f} nats, beyond the end of this slider.")
    if unit == "quantile" and probe is None:  # unknown until Run if the model is not loaded here
        share = 1 - st.session_state.set_threshold_quantile
        name = presets.chosen() or "This setting"
        reached = f"Run sets the threshold that {share:.0%} of the entropies of a greedy run reach"
        st.html(entropy_histogram.empty(f"{name}: {reached}."))
    else:
        st.html(entropy_histogram.html(*_entropies(shown, probe), value, _note(shown, value)))


def _entropies(shown: OpenRun | None, probe: Sequence[float] | None) -> tuple[Sequence[float], str]:
    """The entropies to draw (nats), and whose they are; an active run has only some of them yet."""
    run = shown.run if shown is not None and not shown.active else None
    of_run = run.entropies() if run else []
    return (of_run, "") if of_run or probe is None else (probe, " of a greedy run")


def _note(shown: OpenRun | None, threshold: float) -> str:
    texts = what_if.texts_at(shown, threshold) if shown is not None else None
    return f", about {counted(texts, 'text')}" if texts is not None else ""


def draw_quantile(defaults: dict[str, object]) -> None:
    """Draw the slider of the quantile, if the threshold is one."""
    if st.session_state.set_threshold_unit == "quantile":
        _slider("quantile", mark("entropy_threshold", "set_threshold_quantile", defaults))


def _slider(unit: ThresholdUnit, mark: str) -> float:
    scale = THRESHOLD_SCALES[unit]
    chosen: float = st.slider(
        (_LABEL if unit != "quantile" else "Threshold quantile") + mark,
        scale.widget.low,
        scale.widget.high,
        step=scale.widget.step,
        format=f"%.2f {unit}" if unit != "quantile" else "%.2f",
        key=f"set_threshold_{unit}",
        help=f"{help_of('entropy_threshold')} {scale.help}",
        on_change=_take_nats if unit == "nats" else None,
        **KEPT,
    )
    return chosen


def _show(nats: float) -> None:
    """Move the slider to the value of the quantile in nats."""
    before = st.session_state.get("set_threshold_nats")
    if nats != before:
        st.session_state[_SHOWN] = (before, nats)
        st.session_state.set_threshold_nats = nats


def _take_nats() -> None:
    """Use the slider's value as the threshold, if the user moved it.

    After the page has moved the slider, a late message of the browser still has the old value, and
    the next one has the new value; nobody moved the slider then.
    """
    is_late = st.session_state.set_threshold_nats in st.session_state.get(_SHOWN, ())
    if st.session_state.set_threshold_unit != "quantile" or not is_late:
        st.session_state.set_threshold_unit = "nats"
