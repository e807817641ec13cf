"""A board that its host removes leaves no timer, animation frame or observer running."""

import pytest
from board_page import BOARD, BoardPage, Boards
from browser_steps import OpenPage
from invented_runs import invented_run
from playwright.sync_api import Page, expect

from eab.run import fold

pytestmark = pytest.mark.browser
STORY = invented_run(5, 20, 8)
# Counts pending timers and animation frames, and observers that still observe.
_COUNT = """() => {
  const pending = window.pending = { timers: new Set(), frames: new Set(), observers: new Set() };
  const count = (begin, end, kind) => {
    const [beginning, ending] = [window[begin], window[end]];
    window[begin] = (action, ...more) => {
      const id = beginning((...given) => { pending[kind].delete(id); action(...given); }, ...more);
      pending[kind].add(id);
      return id;
    };
    window[end] = (id) => { pending[kind].delete(id); ending(id); };
  };
  count("setTimeout", "clearTimeout", "timers");
  count("requestAnimationFrame", "cancelAnimationFrame", "frames");
  window.ResizeObserver = class extends ResizeObserver {
    observe(node) { pending.observers.add(this); super.observe(node); }
    disconnect() { pending.observers.delete(this); super.disconnect(); }
  };
}"""


def running(page: Page) -> list[str]:
    """The kinds of which something is still pending."""
    return list(page.evaluate("() => Object.keys(pending).filter((kind) => pending[kind].size)"))


@pytest.fixture
def shown(board: Boards) -> BoardPage:
    made = board()
    made.page.evaluate(_COUNT)
    return made


def test_a_playing_board_stops_when_it_is_removed(shown: BoardPage) -> None:
    shown.feed(fold(STORY), autoplay=True)
    shown.keys("t")
    shown.page.wait_for_function(f"() => Number({BOARD}.dataset.cursor) > 0")
    assert {"frames", "observers"} <= set(running(shown.page))
    shown.page.evaluate(
        f"() => {{ window.root = {BOARD}; document.getElementById('host').remove(); leave(); }}"
    )
    assert running(shown.page) == []
    before = shown.page.evaluate("root.dataset.cursor")
    shown.page.evaluate("new Promise((done) => setTimeout(done, 600))")  # time for three steps
    assert shown.page.evaluate("root.dataset.cursor") == before
    assert running(shown.page) == []


def test_a_board_that_waits_for_messages_stops_when_it_is_removed(shown: BoardPage) -> None:
    shown.feed(fold(STORY[: len(STORY) // 2]), mode="live")
    waits = shown.page.evaluate(
        """() => {
          const waits = pending.timers.size;  // to say that there is no news
          document.getElementById("host").remove();
          leave();
          return waits;
        }"""
    )
    assert waits > 0
    assert running(shown.page) == []
    assert shown.page.evaluate("triggers") == []


def test_a_cleanup_call_removes_nothing_while_the_board_is_in_the_page(shown: BoardPage) -> None:
    shown.feed(fold(STORY), autoplay=True)
    shown.page.evaluate("leave()")
    expect(shown.root).to_be_visible()
    shown.expect_cursor(19)


def test_a_new_board_can_be_made_in_the_same_place(shown: BoardPage) -> None:
    shown.feed(fold(STORY), autoplay=True)
    shown.page.evaluate(
        "() => { const host = document.getElementById('host'); host.remove(); leave(); document.body.append(host); }"
    )
    expect(shown.root).to_have_count(0)
    shown.feed(fold(STORY))
    expect(shown.root).to_have_count(1)
    shown.expect_cursor(19)


@pytest.mark.slow
def test_a_change_of_page_stops_the_board(open_page: OpenPage) -> None:
    page = open_page()
    page.wait_for_function(f"() => Number({_IN_APP}?.dataset.cursor) > 0")
    page.evaluate(f"() => {{ window.root = {_IN_APP}; }}")
    page.get_by_role("link", name="Memory").click()
    page.wait_for_function("() => !root.isConnected")
    page.wait_for_function(
        "() => root.getRootNode() === root"
    )  # removed even from its host, so closed
    before = page.evaluate("root.dataset.cursor")
    page.wait_for_timeout(600)
    assert page.evaluate("root.dataset.cursor") == before


_IN_APP = "[...document.querySelectorAll('*')].map(e => e.shadowRoot?.querySelector('.eab')).find(Boolean)"
