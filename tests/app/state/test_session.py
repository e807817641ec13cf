"""A tab is asked to redraw a part of its page without dropping what it is being sent; and a browser
that has not yet received what the page has set sends the previous values.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.state import session
from app.state.session import Push


class Tab:
    """A session whose event loop runs what is due when `turn` is called."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.asked: list[str] = []
        self._scriptrunner: object | None = object()  # it draws
        self._event_loop = SimpleNamespace(call_later=self._later)

    def _later(self, _seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        self.due.append(lambda: call(*arguments))

    def _call_soon_on_event_loop(self, call: Callable[[], None]) -> None:
        self.due.append(call)

    def request_rerun(self, state: Any) -> None:
        assert self._scriptrunner is None, "what was not sent yet would be lost"
        self.asked.append(state.fragment_id)

    def turn(self) -> None:
        due, self.due = self.due, []
        for call in due:
            call()


@pytest.fixture
def tab(monkeypatch: pytest.MonkeyPatch) -> Tab:
    found = Tab()
    instance = SimpleNamespace(get_app_session={"one": found}.get)
    monkeypatch.setattr(session.runtime, "get_instance", lambda: instance)
    return found


def test_a_push_waits_for_the_drawing_and_asks_once(tab: Tab) -> None:
    push = Push("one", "bar", "page", "class=ABC")
    for _ in range(3):
        push()
    for _ in range(10_000):
        tab.turn()
    assert tab.asked == []
    tab._scriptrunner = None
    tab.turn()
    assert (tab.asked, tab.due) == (["bar"], [])
    push()
    tab.turn()
    assert tab.asked == ["bar", "bar"]


def test_a_push_to_a_closed_tab_is_ignored(tab: Tab) -> None:
    Push("another", "bar", "page", "")()
    assert tab.due == []


BEFORE, AFTER = (1, 1), (5, 6)


def script() -> None:
    import streamlit as st

    from app.state import session

    session.set_again()
    for key in "ab":
        st.slider(key, 0, 10, 1, key=key)
    new = {"a": 5, "b": 6}
    st.button("Set", key="set", on_click=session.set_widgets, args=(new,))


def sliders(page: AppTest) -> tuple[int, ...]:
    assert not page.exception
    return tuple(page.slider(key=key).value for key in "ab")


def after_the_button() -> AppTest:
    page = AppTest.from_function(script).run()
    assert sliders(page) == BEFORE
    page.button(key="set").click().run()
    assert sliders(page) == AFTER
    return page


def sent(page: AppTest, a: int, b: int) -> tuple[int, ...]:
    """The values of the sliders after the browser has sent these values."""
    page.slider(key="a").set_value(a)
    page.slider(key="b").set_value(b)
    return sliders(page.run())


def test_a_late_message_changes_nothing() -> None:
    page = after_the_button()
    assert sent(page, *BEFORE) == AFTER
    assert sent(page, *BEFORE) == AFTER


def test_a_slider_that_a_person_moves_keeps_its_value() -> None:
    page = after_the_button()
    assert sent(page, 1, 6) == (1, 6)
    assert sent(page, 2, 1) == (2, 1)


def test_a_late_message_after_two_changes_in_a_row_changes_nothing() -> None:
    page = after_the_button()
    page.slider(key="a").set_value(7)
    page.button(key="set").click().run()
    assert sliders(page) == AFTER
    assert sent(page, *BEFORE) == AFTER


def test_a_change_of_one_widget_alone_is_taken_as_a_choice(monkeypatch) -> None:
    monkeypatch.setattr(session, "_ONE_CALLBACK", 0.0)
    page = after_the_button()
    page.slider(key="a").set_value(7)
    page.button(key="set").click().run()
    assert sent(page, 7, 6) == (7, 6)


def test_the_previous_values_are_taken_as_a_choice_after_some_seconds(monkeypatch) -> None:
    page = after_the_button()
    monkeypatch.setattr(session, "_SECONDS", 0.0)
    assert sent(page, *BEFORE) == BEFORE
