"""Presets: the settings that shape the tree, or those that the model recommends."""

from typing import Any, Final

import streamlit as st

from app.server import model_cache
from app.state.process import models
from app.widgets import board, model_choice, setting_widgets
from eab.branching.presets import PRESETS, START
from eab.config import OF_DISTRIBUTION
from eab.formatting import listed

_NAMES: Final = {preset.capitalize(): preset for preset in PRESETS}
_OWN: Final = "Model's own"  # only if the model recommends something
_CHOSEN: Final = "preset"


def draw() -> None:
    """Draw the choice of a preset; one is selected while the settings match it."""
    st.session_state[_CHOSEN] = chosen()
    words = [f"{name}: {PRESETS[preset].help}" for name, preset in _NAMES.items()]
    recommended = listed([f"{name} {value:g}" for name, value in _recommended().items()])
    own = [f"{_OWN}: {recommended}"] if recommended else []
    st.segmented_control(
        "Preset",
        _offered(),
        key=_CHOSEN,
        on_change=_apply,
        help="; ".join([*words, *own]) + ".",
        width="stretch",
    )


def _recommended() -> dict[str, float]:
    """The settings that the model recommends, as far as known without loading it."""
    return model_cache.recommended(model_choice.name(), models().peek(model_choice.name()))


def chosen() -> str | None:
    """The preset that the settings match, as the page names it; None if they match none."""
    return next((name for name in _offered() if _is_set(name)), None)


def _offered() -> list[str]:
    return [*_NAMES, *([_OWN] if _recommended() else [])]


def _settings(name: str) -> dict[str, Any]:
    values: dict[str, Any] = dict(PRESETS[_NAMES.get(name, "balanced")].settings)
    # If sampling left only a few tokens, a larger branch factor would have no effect.
    values |= {sampling: getattr(START, sampling) for sampling in OF_DISTRIBUTION}
    if name == _OWN:
        values |= _recommended()
    held = {
        f"set_{setting}": setting_widgets.nearest(setting, values[setting]) for setting in values
    }
    held["set_threshold_rank"] = held.pop("set_entropy_threshold")
    return held


def _is_set(name: str) -> bool:
    return all(st.session_state[key] == value for key, value in _settings(name).items())


def _apply() -> None:
    name = st.session_state[_CHOSEN]
    if name is not None:  # None: the selected preset was pressed again
        board.set_widgets(_settings(name))
