"""Presets of the settings that shape the tree, and of those that the model recommends."""

from typing import Any, Final

import streamlit as st

from app.server import model_cache
from app.state.process import models
from app.widgets import model_choice, setting_widgets, starting_values
from eab.formatting import listed

_BALANCED: Final = "Balanced"
# By name: what it is for, its quantile of the model's entropies and its threshold in nats, branch
# factor and paths; None for the values that the model starts with.
_PRESETS: Final[dict[str, tuple[str, tuple[float, float, int, int] | None]]] = {
    "Focused": ("few paths, forks only where the model is very unsure", (0.97, 1.5, 2, 6)),
    _BALANCED: ("the defaults", None),
    "Wide": ("many paths, forks also where the model is fairly sure", (0.8, 0.4, 4, 32)),
}
_OWN: Final = "Model's own"  # only where the model recommends something
_CHOSEN: Final = "preset"


def draw() -> None:
    """Draw the choice of a preset; one is chosen while the settings are those that it sets."""
    names = [*_PRESETS, *([_OWN] if _recommended() else [])]
    st.session_state[_CHOSEN] = next((name for name in names if _is_set(name)), None)
    words = [f"{name}: {what}" for name, (what, _) in _PRESETS.items()]
    own = [f"{_OWN}: {shown}" for shown in [_recommendation()] if shown]
    st.segmented_control(
        "Preset",
        names,
        key=_CHOSEN,
        on_change=_apply,
        help=f"{listed([*words, *own])}.",
        width="stretch",
    )


def _recommended() -> dict[str, float]:
    """What the model recommends, without loading it."""
    return model_cache.recommended(model_choice.name(), models().peek(model_choice.name()))


def _recommendation() -> str:
    return listed([f"{name} {value:g}" for name, value in _recommended().items()])


def _settings(name: str) -> dict[str, Any]:
    start = starting_values.config()
    chosen: dict[str, Any] = {
        "threshold_unit": start.threshold_unit,
        f"threshold_{start.threshold_unit}": start.entropy_threshold,
        "branch_factor": start.branch_factor,
        "max_paths": start.max_paths,
        # Where few tokens are left, a larger branch factor would do nothing.
        **{sampling: getattr(start, sampling) for sampling in ("temperature", "top_k", "top_p")},
    }
    if name == _OWN:
        chosen |= {
            setting: setting_widgets.nearest(setting, value)
            for setting, value in _recommended().items()
        }
    elif (shape := _PRESETS[name][1]) is not None:
        quantile, nats, chosen["branch_factor"], chosen["max_paths"] = shape
        threshold = nats if start.threshold_unit == "nats" else quantile
        chosen[f"threshold_{start.threshold_unit}"] = threshold
    chosen["max_paths"] = setting_widgets.nearest("max_paths", chosen["max_paths"])
    return {f"set_{setting}": value for setting, value in chosen.items()}


def _is_set(name: str) -> bool:
    return all(st.session_state[key] == value for key, value in _settings(name).items())


def _apply() -> None:
    name = st.session_state[_CHOSEN]
    if name is not None:  # the chosen preset was pressed again
        st.session_state.update(_settings(name))
