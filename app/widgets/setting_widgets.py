"""The widget of each setting, made from its declaration (eab.config).

A mark in its label says that its value is not the page's default, and what that is.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import streamlit as st

from app.server import rules
from eab import token_text
from eab.config import SETTINGS, THRESHOLD_SCALES, ThresholdUnit
from eab.formatting import shortened
from eab.remote import operator
from eab.settings import (
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

_TEXT_HEIGHT: Final = 96  # pixels of a box for several lines
_LONGEST: Final = 40  # characters of a text that is named in a sentence
# The settings that have a widget; the threshold has one per unit.
FIELDS: Final = tuple(name for name, declared in SETTINGS.items() if declared.widget is not None)
_PAGE: Final = "page_of_the_widgets"  # which was drawn last
KEPT: Final[Any] = {"persist_state": "session"}  # a value stays while its widget is not drawn
# The pages that tell more about a setting.
_SEE: Final = {
    "cache": "Memory",
    "r": "BMC",
    "attention": "BMC",
    "draft_length": "Speculative decoding",
}


@contextmanager
def carried_to(page: str) -> Iterator[None]:
    """Draw a page whose widgets have the values that they had on the page before.

    A widget has another identity on each page, and Streamlit hands its kept value over only at the
    end of the first drawing: until then it would stand at its lowest value, and be read so.

    Args:
        page: Names the page.
    """
    if st.session_state.get(_PAGE) != page:
        for key in map(str, st.session_state):
            if key == "prompt" or key.startswith("set_"):
                st.session_state[key] = st.session_state[key]
    yield
    st.session_state[_PAGE] = page  # not if the drawing was interrupted


def nearest(name: str, value: Any) -> Any:
    """The value that the widget of this setting offers, nearest to this one."""
    widget = _widget(name)
    return value if widget is None else widget.nearest(value)


def _widget(name: str) -> Widget | None:
    """The widget of a setting: within the rules of this server, and what its models can do."""
    widget = SETTINGS[name].widget
    if name in ("max_paths", "max_new_tokens") and isinstance(widget, Slider):
        return replace(widget, high=min(widget.high, getattr(rules.current(), name)))
    if name == "drafter" and isinstance(widget, Menu) and not operator.is_allowed():
        return Menu(tuple(drafter for drafter in widget.names if drafter != "run-ahead"))
    return widget


def read(name: str, held: Any) -> Any:
    """The value of a setting whose widget holds this."""
    widget = SETTINGS[name].widget
    return widget.read(held) if isinstance(widget, Lines) else held


def draw(name: str, defaults: Mapping[str, Any]) -> None:
    """Draw the widget of one setting.

    Args:
        name: The setting.
        defaults: What each widget starts with, by its key in the session.
    """
    if name == "entropy_threshold":
        _draw_threshold(defaults)
        return
    declared, key = SETTINGS[name], f"set_{name}"
    mark = _mark(name, key, defaults[key])
    label, given = declared.label + mark, {"key": key, "help": _help(name), **KEPT}
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


def _draw_threshold(defaults: Mapping[str, Any]) -> None:
    """Draw the slider of the threshold in the chosen unit, and what its value means."""
    unit: ThresholdUnit = st.session_state.set_threshold_unit
    scale, key = THRESHOLD_SCALES[unit], f"set_threshold_{unit}"
    value = st.slider(
        SETTINGS["entropy_threshold"].label + _mark("entropy_threshold", key, defaults[key]),
        scale.widget.low,
        scale.widget.high,
        step=scale.widget.step,
        format=f"%.2f {unit}",
        key=key,
        help=f"{_help('entropy_threshold')} {scale.help}",
        **KEPT,
    )
    st.caption(_threshold_words(unit, value))


def _threshold_words(unit: ThresholdUnit, value: float) -> str:
    """What a threshold means for the tree."""
    if unit == "nats":
        words = f"{math.exp(value):.1f}"
        return f"Branches when the model wavers between about {words} words or more."
    if unit == "normalised":
        return "Branches at this share of ln V, the largest possible entropy."
    return (
        f"Branches where the entropy is among the highest {1 - min(value, 1):.0%} of a greedy "
        "probe of the prompt, and at least 0.3 nats."
    )


def _help(name: str) -> str:
    page = f" See the page {_SEE[name]}." if name in _SEE else ""
    return SETTINGS[name].help + page


def _mark(name: str, key: str, default: Any) -> str:
    """The end of a label: empty while the widget has its default, else a dot and the default."""
    if st.session_state[key] == default:
        return ""
    return f" ● default {shown(name, default)}"  # plain, since screen readers are given it as it is


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
