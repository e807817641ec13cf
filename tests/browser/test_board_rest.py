"""Where the cursor of the board comes to rest by itself, and what can be read there."""

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
def test_autoplay_rests_at_the_step_with_most_paths_and_repeats_until_touched(
    board: Boards,
) -> None:
    shown = board()
    peak = STORY.peak_step
    shown.page.clock.install()
    shown.feed(STORY, autoplay=True)
    shown.page.clock.run_for(5_000)
    shown.expect_cursor(peak)
    expect(shown.root).to_have_attribute("data-playing", "false")
    shown.page.clock.run_for(5_200)
    expect(shown.root).to_have_attribute("data-playing", "true")
    shown.page.mouse.click(5, 5)
    shown.page.clock.run_for(30_000)
    expect(shown.root).to_have_attribute("data-playing", "false")
    shown.expect_cursor(peak)


def test_a_live_run_rests_at_the_step_with_most_paths_unless_touched(board: Boards) -> None:
    for touched in (False, True):
        shown = board()
        shown.page.clock.install()
        shown.feed(fold(EVENTS[:-1]), mode="live")
        shown.page.clock.run_for(10_000)
        shown.feed(STORY, mode="live")
        shown.expect_cursor(len(STORY.steps) - 1)
        if touched:
            shown.root.click(position={"x": 5, "y": 5})
        shown.page.clock.run_for(5_000)
        shown.expect_cursor(len(STORY.steps) - 1 if touched else STORY.peak_step)


def test_without_motion_a_recording_opens_at_the_step_with_most_paths(board: Boards) -> None:
    shown = board(reduced_motion="reduce")
    for _ in range(2):  # a repeated message moves nothing
        shown.feed(BRIDGE, autoplay=True)
        shown.expect_cursor(BRIDGE.peak_step)


def test_at_rest_texts_are_shown_to_their_ends_until_the_cursor_moves(
    screen: Boards,
) -> None:
    shown = screen(1366, 768, reduced_motion="reduce")
    peak = BRIDGE.peak_step
    shown.feed(BRIDGE, autoplay=True)
    shown.expect_cursor(peak)

    def written(path: int, selector: str = ".label") -> str:
        lines = shown.box(path).locator(f"{selector}").all_text_contents()
        return "".join(lines).replace(" ", "")

    def text(path: int, first: int = 0, last: int | None = None) -> str:
        tokens = [one for one in BRIDGE.paths[path].tokens if first <= one.step < (last or 10**6)]
        return "".join(one.text for one in tokens if not one.special).replace(" ", "")

    living = [path for path in shown.drawn_paths() if text(path, first=peak + 1)]
    assert len(living) >= 4
    for path in living:
        assert written(path) == text(path)
        assert written(path, ".to-come") == text(path, first=peak + 1)
    shown.keys("ArrowLeft")
    shown.expect_cursor(peak - 1)
    expect(shown.find(".to-come")).to_have_count(0)
    for path in living:
        assert written(path) == text(path, last=peak)
