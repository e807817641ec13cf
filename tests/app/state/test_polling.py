"""A push waits until a tab has been drawn, however long that takes."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from app.state import polling
from app.state.polling import Push


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
    monkeypatch.setattr(polling.runtime, "get_instance", lambda: instance)
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
