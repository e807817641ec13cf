"""The slider of the entropy threshold, and the entropies that it stands among."""

import math
from collections.abc import Sequence
from typing import Final

import streamlit as st

from app.state import what_if
from app.state.tab import OpenRun
from app.widgets import presets
from app.widgets.setting_widgets import KEPT, help_of, mark
from eab.config import SETTINGS, THRESHOLD_SCALES, ThresholdUnit
from eab.formatting import counted
from eab.run import Run

_LABEL: Final = SETTINGS["entropy_threshold"].label
_NATS: Final = THRESHOLD_SCALES["nats"].widget
_BINS: Final = 40


def draw(defaults: dict[str, object], prompt: str, shown: OpenRun | None) -> None:
    """Draw the slider, and below it where the threshold stands among entropies of this model.

    While the threshold is a quantile, the slider shows what that came to in nats; moving the slider
    sets the threshold in nats.

    Args:
        defaults: What each widget starts with, by its key in the session.
        prompt: The prompt that would be run.
        shown: The run on the screen, if there is one.
    """
    unit: ThresholdUnit = st.session_state.set_threshold_unit
    run = shown.run if shown is not None else None
    if unit == "normalised":
        _slider(unit, mark("entropy_threshold", f"set_threshold_{unit}", defaults))
        st.caption("Branches at this share of ln V, the largest possible entropy.")
        return
    found = _came_to(run, prompt) if unit == "quantile" else None
    if found is not None:
        st.session_state.set_threshold_nats = _NATS.nearest(round(found, 2))
    value = _slider("nats", "" if unit == "quantile" else " ● default by preset")
    entropies = _entropies(run) if run is not None else []
    if entropies and (unit == "nats" or found is not None):
        st.html(_histogram(entropies, value))
    texts = what_if.texts_at(shown, value) if shown is not None else None
    st.caption(_words(unit, value, found, entropies, texts))


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


def _take_nats() -> None:
    """The slider was moved: its value is what runs."""
    st.session_state.set_threshold_unit = "nats"


def _came_to(run: Run | None, prompt: str) -> float | None:
    """What the chosen quantile came to (nats), if the run on the screen had it and this prompt."""
    if run is None or run.started.prompt != prompt:
        return None
    config, quantile = run.started.config, st.session_state.set_threshold_quantile
    same = config.threshold_unit == "quantile" and config.entropy_threshold == quantile
    return run.started.threshold_nats if same else None


def _entropies(run: Run) -> list[float]:
    """Those of all steps of a run (nats)."""
    return [token.entropy for path in run.paths for token in path.tokens]


def _words(
    unit: ThresholdUnit,
    value: float,
    found: float | None,
    entropies: Sequence[float],
    texts: int | None,
) -> str:
    """What the threshold means for the tree."""
    above = sum(entropy >= value for entropy in entropies)
    steps = f"{above} of {counted(len(entropies), 'token')}" if entropies else ""
    if steps and texts is not None:
        steps += f", about {counted(texts, 'text')}"
    if unit == "quantile" and found is None:
        share = 1 - st.session_state.set_threshold_quantile
        name = presets.chosen() or "This setting"
        return f"{name}: Run takes the highest {share:.0%} of the entropies that your prompt meets."
    options = f"{math.exp(value):.1f} likely words"
    return f"Forks at {options} or more" + (f": {steps}." if steps else ".")


def _histogram(entropies: Sequence[float], threshold: float) -> str:
    """Bars on the scale of the slider, as high as the square roots of their counts; the last one
    has all that lie beyond.
    """
    width = _NATS.high / _BINS
    counts = [0] * _BINS
    for entropy in entropies:
        counts[min(int(entropy / width), _BINS - 1)] += 1
    most = math.sqrt(max(counts))
    bars = "".join(
        f'<i style="height:{math.sqrt(count) / most:.0%}"'
        f"{' class=fork' if (index + 0.5) * width >= threshold else ''}></i>"
        for index, count in enumerate(counts)
    )
    above = sum(entropy >= threshold for entropy in entropies)
    title = f"{above} of {len(entropies)} entropies lie at or above {threshold:.2f} nats"
    return f'<div class="eab-entropies" role="img" aria-label="{title}">{bars}</div>'
