"""The widget of each setting, made from its declaration (eab.config).

A mark in its label shows that the value is not the page's default, and what the default is.

The widgets start with the page's values, or those of an example. What a visitor has changed stays
when another model or prompt is chosen; the rest is reset.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

import streamlit as st

from app.server import rules
from app.widgets import board
from eab import token_text
from eab.config import SETTINGS, BranchingConfig
from eab.engine.branching.presets import START, THRESHOLDS
from eab.engine.remote import connection
from eab.formatting import shortened
from eab.settings import (
    THRESHOLD_SCALES,
    Buttons,
    Lines,
    Menu,
    NumberBox,
    Slider,
    Steps,
    TextArea,
    TextLine,
    Toggle,
    Widget,
)

_T = TypeVar("_T")
_TEXT_HEIGHT: Final = 96  # pixels of a box for several lines
_LONGEST: Final = 40  # characters of a text quoted in a sentence
# The settings with a widget here; those of the threshold are in app.widgets.threshold.
FIELDS: Final = tuple(name for name, declared in SETTINGS.items() if declared.widget is not None)
_PAGE: Final = "page_of_the_widgets"  # the page that was drawn last
KEPT: Final[Any] = {"persist_state": "session"}  # keeps a value while its widget is not drawn
# The pages that explain more about a setting.
_SEE: Final = {
    "cache": "Memory",
    "r": "BMC",
    "attention": "BMC",
    "draft_length": "Speculative decoding",
}


@contextmanager
def carried_to(page: str) -> Iterator[None]:
    """Draw a page whose widgets keep their values from the previous page.

    A widget has another identity on each page, and Streamlit hands its kept value over only at the
    end of the first drawing. Until then, it would show its lowest value, and that would be read.
    """
    if st.session_state.get(_PAGE) != page:
        for key in map(str, st.session_state):
            if key == "prompt" or key.startswith("set_"):
                st.session_state[key] = st.session_state[key]
    yield
    st.session_state[_PAGE] = page  # not reached if the drawing is interrupted


def nearest(name: str, value: Any) -> Any:
    """The value offered by the widget of this setting that is nearest to the given one."""
    widget = _widget(name)
    return value if widget is None else widget.nearest(value)


def _widget(name: str) -> Widget | None:
    """The widget of a setting, limited by this server's rules and by what its models can do."""
    widget = SETTINGS[name].widget
    if name in ("max_paths", "max_new_tokens") and isinstance(widget, Slider):
        return replace(widget, high=min(widget.high, getattr(rules.current(), name)))
    if name == "drafter" and isinstance(widget, Menu) and not connection.is_allowed():
        return Menu(tuple(drafter for drafter in widget.names if drafter != "run-ahead"))
    return widget


def read(name: str, held: Any) -> Any:
    """The value of a setting whose widget holds `held`."""
    widget = SETTINGS[name].widget
    return widget.read(held) if isinstance(widget, Lines) else held


def draw(name: str, defaults: Mapping[str, Any]) -> None:
    """Draw the widget of one setting."""
    declared, key = SETTINGS[name], f"set_{name}"
    label = declared.label + mark(name, key, defaults)
    given = {"key": key, "help": help_of(name), **KEPT}
    match _widget(name):
        case Slider(low, high, step):
            st.slider(label, low, high, step=step, **given)
        case NumberBox(low, high):
            st.number_input(label, low, high, **given)
        case Steps(values) as steps:
            st.select_slider(label, values, format_func=steps.label, **given)
        case Menu(names):
            st.selectbox(label, names, **given)
        case Buttons(labels):
            st.segmented_control(
                label, list(labels), format_func=labels.__getitem__, required=True, **given
            )
        case Toggle():
            st.toggle(label, **given)
        case TextLine(example):
            st.text_input(label, placeholder=example, **given)
        case TextArea(example) | Lines(example):
            st.text_area(label, placeholder=example, height=_TEXT_HEIGHT, **given)


def help_of(name: str) -> str:
    """What a setting does, and which page explains more."""
    page = f" See the {_SEE[name]} page." if name in _SEE else ""
    return SETTINGS[name].help + page


def mark(name: str, key: str, defaults: Mapping[str, Any]) -> str:
    """The end of a label: empty while the widget has its default, else a dot and the default."""
    if st.session_state[key] == defaults[key]:
        return ""
    # plain, because screen readers read it as it is
    return f" ● default {shown(name, defaults[key])}"


def shown(name: str, value: Any) -> str:
    """A value of a setting as its widget shows it."""
    widget = SETTINGS[name].widget
    match widget:
        case Steps():
            return widget.label(value)
        case Buttons(labels):
            return labels[value]
        case Toggle():
            return "on" if value else "off"
        case Lines() if isinstance(value, tuple):
            return shown(name, widget.nearest(value))
        case TextLine() | TextArea() | Lines():
            return shortened(token_text.visible(value), _LONGEST) or "empty"
    return f"{value:g}" if isinstance(value, float) else str(value)


def choose_one(
    label: str,
    options: Sequence[_T],
    key: str,
    written: Callable[[_T], str] = str,
    place: Any = st,
) -> _T:
    """Draw a choice; it falls back to the first option once the chosen one is not offered."""
    if st.session_state.get(key) not in options:
        st.session_state[key] = options[0]
    chosen: _T = place.selectbox(label, options, format_func=written, key=key)
    return chosen


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
    unit = config.threshold_unit
    threshold = THRESHOLD_SCALES[unit].widget.nearest(config.entropy_threshold)
    return defaults() | _fields(config) | {f"set_threshold_{unit}": threshold}


def begin_with(values: dict[str, Any]) -> None:
    """Set the widgets to values that no visitor has chosen; for callbacks."""
    board.set_widgets(values)
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
    return {f"set_{name}": nearest(name, getattr(config, name)) for name in FIELDS}
