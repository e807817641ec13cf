"""Where the cursor of the board stops by itself."""

import pytest
from board_page import Boards
from invented_runs import invented_run
from made_runs import bundled_run
from playwright.sync_api import expect

from eab.run import fold

pytestmark = pytest.mark.browser
EVENTS = invented_run(5, 20, 8)
STORY = fold(EVENTS)
BRIDGE = bundled_run("bridge")


@pytest.mark.slow
def test_autoplay_repeats_until_touched(board: Boards) -> None:
    shown = board()
    last = len(STORY.steps) - 1
    shown.page.clock.install()
    shown.feed(STORY, autoplay=True)
    shown.page.clock.run_for(5_000)
    shown.expect_cursor(last)
    expect(shown.root).to_have_attribute("data-playing", "false")
    shown.page.clock.run_for(5_200)
    expect(shown.root).to_have_attribute("data-playing", "true")
    shown.page.mouse.click(5, 5)
    shown.page.clock.run_for(30_000)
    expect(shown.root).to_have_attribute("data-playing", "false")
    shown.expect_cursor(last)


def test_a_live_run_stays_at_its_end(board: Boards) -> None:
    shown = board()
    shown.page.clock.install()
    shown.feed(fold(EVENTS[:-1]), mode="live")
    shown.page.clock.run_for(10_000)
    shown.feed(STORY, mode="live")
    shown.page.clock.run_for(15_000)
    shown.expect_cursor(len(STORY.steps) - 1)


def test_without_motion_a_recording_opens_at_its_end(board: Boards) -> None:
    shown = board(reduced_motion="reduce")
    for _ in range(2):  # a repeated message moves nothing
        shown.feed(BRIDGE, autoplay=True)
        shown.expect_cursor(len(BRIDGE.steps) - 1)
