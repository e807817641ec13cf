"""The values that the widgets of the settings start with: the page's, or those of an example.

What a visitor has changed stays when another model or prompt is chosen; the rest is reset.
"""

from typing import Any, Final

import streamlit as st

from app.widgets import late_messages, setting_widgets
from app.widgets.setting_widgets import FIELDS
from eab.branching.presets import START, THRESHOLDS
from eab.config import BranchingConfig
from eab.threshold_scales import THRESHOLD_SCALES

_BEGUN_WITH: Final = "begun_with"  # the values that no visitor has chosen


def defaults() -> dict[str, Any]:
    """The starting value of each widget, by its session key."""
    thresholds = {f"set_threshold_{unit}": value for unit, value in THRESHOLDS.items()}
    return _fields(START) | thresholds


def ensure() -> None:
    """Give every widget without a value its default; Streamlit forgets undrawn widgets."""
    values = defaults()
    for key, value in values.items():
        st.session_state.setdefault(key, value)
    st.session_state.setdefault(_BEGUN_WITH, values)


def of_config(config: BranchingConfig) -> dict[str, Any]:
    """The widgets' values for these settings, or the nearest ones on offer."""
    slider = THRESHOLD_SCALES[config.threshold_unit].widget
    nearest = slider.nearest(config.entropy_threshold)
    return defaults() | _fields(config) | {f"set_threshold_{config.threshold_unit}": nearest}


def begin_with(values: dict[str, Any]) -> None:
    """Set the widgets to values that no visitor has chosen; for callbacks."""
    late_messages.set_widgets(values)
    st.session_state[_BEGUN_WITH] = values


def move_to(values: dict[str, Any]) -> None:
    """Set the widgets to these values, except those that a visitor has changed; for callbacks."""
    before = st.session_state.get(_BEGUN_WITH, values)
    begin_with(
        values | {key: chosen for key in values if (chosen := st.session_state[key]) != before[key]}
    )
    st.session_state[_BEGUN_WITH] = values


def reset_unchanged() -> None:
    """Reset what the visitor has not changed, for another model or prompt; for callbacks."""
    move_to(defaults())


def _fields(config: BranchingConfig) -> dict[str, Any]:
    return {f"set_{name}": setting_widgets.nearest(name, getattr(config, name)) for name in FIELDS}
