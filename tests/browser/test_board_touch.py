"""The board on a touch screen, with touches as Chromium delivers them."""

import pytest
from board_page import BOARD, BoardPage, Boards
from browser_steps import box_of
from invented_runs import invented_run
from playwright.sync_api import CDPSession, expect

from eab.run import fold

pytestmark = pytest.mark.browser
STORY = invented_run(5, 20, 8)


@pytest.fixture
def shown(board: Boards) -> BoardPage:
    made = board(has_touch=True, is_mobile=True)
    made.feed(fold(STORY), offers={"what_if": True})
    return made


def swipe(shown: BoardPage, start: tuple[float, float], by: tuple[float, float]) -> None:
    """Move one finger from a place on the screen by this distance, in ten moves."""
    finger: CDPSession = shown.page.context.new_cdp_session(shown.page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        there = [{"x": x, "y": y} for x, y in points]
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": there})

    touch("touchStart", start)
    for share in range(1, 11):
        touch("touchMove", (start[0] + by[0] * share / 10, start[1] + by[1] * share / 10))
        shown.page.wait_for_timeout(30)
    touch("touchEnd")


def middle(shown: BoardPage, name: str) -> tuple[float, float]:
    box = box_of(shown.find(name))
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.mark.parametrize(
    ("place", "beside"), [(".grip", 0), (".grip", 12), (".threshold-label", 0)]
)
def test_a_finger_drags_the_threshold_and_not_the_page(
    shown: BoardPage, place: str, beside: int
) -> None:
    shown.page.evaluate(f"() => {{ {BOARD}.style.paddingBottom = '2000px'; }}")
    shown.find("svg.entropy").scroll_into_view_if_needed()
    scrolled = shown.page.evaluate("scrollY")
    label = shown.find(".threshold-label")
    expect(label).to_have_text("1.20 ⇕")
    cursor = shown.data("cursor")
    x, y = middle(shown, f"svg.entropy {place}")
    swipe(shown, (x, y + beside), (0, -60))
    assert shown.page.evaluate("scrollY") == scrolled
    moved = y - middle(shown, f"svg.entropy {place}")[1]
    assert moved == pytest.approx(60 - beside, abs=1.5)  # to the finger's position
    assert (
        shown.page.evaluate("triggers.every((name) => name === 'what_if') && triggers.length") > 0
    )
    assert shown.data("cursor") == cursor


def test_a_horizontal_swipe_along_the_trace_moves_the_cursor(shown: BoardPage) -> None:
    shown.find("svg.entropy").scroll_into_view_if_needed()
    box = box_of(shown.find("svg.entropy"))
    swipe(shown, (box["x"] + box["width"] * 0.9, box["y"] + 40), (-box["width"] * 0.6, 0))
    assert 0 < shown.data("cursor") < 19


def test_a_vertical_swipe_over_the_trace_scrolls_the_page(shown: BoardPage) -> None:
    shown.page.evaluate(f"() => {{ {BOARD}.style.paddingBottom = '2000px'; }}")
    shown.find("svg.entropy").scroll_into_view_if_needed()
    before = shown.page.evaluate("scrollY")
    x, y = middle(shown, "svg.entropy")
    swipe(shown, (x, y + 60), (0, -150))
    shown.page.wait_for_function("before => scrollY > before", arg=before)
