"""Protects values that the page gives to widgets from a browser that does not know them yet.

With every message, a browser sends the values of all its widgets. After a callback has set new
values, a slow browser sends the old ones for a while, and Streamlit would take them for a choice.
"""

import time
from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

_CHANGE: Final = "set_by_page"  # the last change by the page
_SECONDS: Final = 30.0  # how long a change may take to reach a slow browser
_ONE_CALLBACK: Final = 1.0  # second; changes within it count as one


@dataclass(frozen=True, slots=True)
class _Change:
    at: float  # monotonic seconds
    before: dict[str, Any]
    after: dict[str, Any]

    def is_younger_than(self, seconds: float) -> bool:
        return time.monotonic() < self.at + seconds


def set_widgets(values: dict[str, Any]) -> None:
    """Set these widgets, by their session keys; for callbacks."""
    held = {key: st.session_state.get(key) for key in values}
    before = {key: old for key, old in held.items() if old is not None and old != values[key]}
    after = {key: values[key] for key in before}
    last: _Change | None = st.session_state.get(_CHANGE)
    if last is not None and last.is_younger_than(_ONE_CALLBACK):
        before, after = before | last.before, last.after | after
    st.session_state[_CHANGE] = _Change(time.monotonic(), before, after)
    st.session_state.update(values)


def set_again() -> None:
    """Undo a late message, which has the old values of all widgets; call it before the widgets are
    drawn. A single changed widget may be the user's choice.
    """
    last: _Change | None = st.session_state.get(_CHANGE)
    if last is None or len(last.before) < 2 or not last.is_younger_than(_SECONDS):
        return
    if all(st.session_state.get(key) == old for key, old in last.before.items()):
        st.session_state.update(last.after)
