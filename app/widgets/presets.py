"""Three presets of the settings that shape the tree."""

from typing import Any, Final

import streamlit as st

from app.widgets import setting_widgets
from app.widgets.setting_widgets import START
from eab.formatting import listed

# By name: what it is for, and what it sets, by the widget's key without `set_`.
_PRESETS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "Focused": (
        "few paths, forks only where the model is very unsure",
        {"threshold_nats": 1.5, "branch_factor": 2, "max_paths": 6},
    ),
    "Balanced": (
        "the defaults",
        {
            "threshold_nats": START.entropy_threshold,
            "branch_factor": START.branch_factor,
            "max_paths": START.max_paths,
        },
    ),
    "Wide": (
        "many paths, forks also where the model is fairly sure",
        {"threshold_nats": 0.4, "branch_factor": 4, "max_paths": 32},
    ),
}
_CHOSEN: Final = "preset"


def draw() -> None:
    """Draw the choice of a preset; one is chosen while the settings are those that it sets."""
    st.session_state[_CHOSEN] = next((name for name in _PRESETS if _is_set(name)), None)
    st.segmented_control(
        "Preset",
        list(_PRESETS),
        key=_CHOSEN,
        on_change=_apply,
        help=f"{listed([f'{name}: {what}' for name, (what, _) in _PRESETS.items()])}.",
        width="stretch",
    )


def _settings(name: str) -> dict[str, Any]:
    # Where top-k or top-p leave few tokens, a larger branch factor would do nothing.
    sampling = {"top_k": START.top_k, "top_p": START.top_p}
    chosen = {"threshold_unit": "nats", **sampling, **_PRESETS[name][1]}
    chosen["max_paths"] = setting_widgets.nearest("max_paths", chosen["max_paths"])
    return {f"set_{setting}": value for setting, value in chosen.items()}


def _is_set(name: str) -> bool:
    return all(st.session_state[key] == value for key, value in _settings(name).items())


def _apply() -> None:
    name = st.session_state[_CHOSEN]
    if name is not None:  # the chosen preset was pressed again
        st.session_state.update(_settings(name))
