"""The values that the widgets of the settings start with: those of the model, or of an example.

What a visitor has changed stays when another model or prompt is chosen; the rest starts anew.
"""

from dataclasses import replace
from typing import Any, Final

import streamlit as st

from app.widgets import model_choice, setting_widgets
from app.widgets.setting_widgets import FIELDS
from eab.config import THRESHOLD_SCALES, BranchingConfig, ThresholdUnit

# Where they differ from the library's: unlikely paths do not branch, and a run ends within seconds.
STORIES: Final = BranchingConfig(
    min_fork_weight=0.03, max_paths=16, max_new_tokens=48, kv_limit_mib=1024
)
# Any other model: a threshold in nats fits one model only, so it is a quantile of the model's own
# entropies. Chosen by looking at trees of SmolLM2 (docs/models.md).
OTHERS: Final = replace(
    STORIES,
    threshold_unit="quantile",
    entropy_threshold=0.9,
    branch_factor=2,
    max_paths=8,
    min_fork_weight=0.05,
    temperature=0.5,
    top_p=0.9,
)
_THRESHOLDS: Final[dict[ThresholdUnit, float]] = {
    "nats": STORIES.entropy_threshold,
    "normalised": 0.08,
    "quantile": OTHERS.entropy_threshold,
}
_BEGUN_WITH: Final = "begun_with"  # the values that no visitor has chosen


def config() -> BranchingConfig:
    """The settings that the chosen model starts with."""
    return STORIES if not model_choice.name() or model_choice.is_embedded() else OTHERS


def thresholds() -> dict[ThresholdUnit, float]:
    """The thresholds that the chosen model starts with, by their units."""
    start = config()
    return _THRESHOLDS | {start.threshold_unit: start.entropy_threshold}


def defaults() -> dict[str, Any]:
    """What each widget starts with for the chosen model, by its key in the session."""
    fields = _fields(config())
    return fields | {f"set_threshold_{unit}": value for unit, value in thresholds().items()}


def ensure() -> None:
    """Give every widget without a value its default; Streamlit forgets undrawn widgets."""
    values = defaults()
    for key, value in values.items():
        st.session_state.setdefault(key, value)
    st.session_state.setdefault(_BEGUN_WITH, values)


def of_config(config: BranchingConfig) -> dict[str, Any]:
    """The widgets' values for these settings, or the nearest that they offer."""
    slider = THRESHOLD_SCALES[config.threshold_unit].widget
    nearest = slider.nearest(config.entropy_threshold)
    return defaults() | _fields(config) | {f"set_threshold_{config.threshold_unit}": nearest}


def begin_with(values: dict[str, Any]) -> None:
    """Set the widgets to values that no visitor has chosen; for callbacks."""
    st.session_state.update(values)
    st.session_state[_BEGUN_WITH] = values


def move_to(values: dict[str, Any]) -> None:
    """Set the widgets to these values, except those that a visitor has changed; for callbacks."""
    before = st.session_state.get(_BEGUN_WITH, values)
    begin_with(
        values | {key: chosen for key in values if (chosen := st.session_state[key]) != before[key]}
    )
    st.session_state[_BEGUN_WITH] = values


def follow_model() -> None:
    """Another model was chosen: what the visitor has not changed starts as that model's."""
    move_to(defaults())


def _fields(config: BranchingConfig) -> dict[str, Any]:
    return {f"set_{name}": setting_widgets.nearest(name, getattr(config, name)) for name in FIELDS}
