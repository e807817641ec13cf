"""For users who cannot see the picture, use no mouse, or want no motion: axe, keyboard, contrast,
narrow screens.
"""

from pathlib import Path

import pytest
from axe import grave_findings
from board_page import BOARD, Boards
from browser_steps import OpenPage
from invented_runs import invented_run
from made_runs import bundled_run
from playwright.sync_api import expect

from eab.run import fold
from eab.share.exports import save_html

pytestmark = pytest.mark.browser
# Keys, and the elements that they open.
OPENED = {
    "ArrowDown ArrowDown": ".inspector li",
    "t": ".table-box tbody tr",
    "?": ".help",
    "/": ".finder",
}
STORY = fold(invented_run(5, 20, 8))


def test_axe_finds_no_serious_problem_on_the_offline_page(
    new_page: OpenPage, tmp_path: Path
) -> None:
    file = tmp_path / "run.html"
    save_html(bundled_run("bridge"), file)
    # bypass_csp, because axe is injected
    page = new_page(color_scheme="dark", reduced_motion="reduce", bypass_csp=True)
    page.goto(file.as_uri())
    expect(page.locator(".box.path").first).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("t")
    expect(page.locator(".table-box tbody tr").first).to_be_visible()
    assert grave_findings(page) == []


def test_tab_reaches_every_visible_control_shows_the_focus_and_leaves_the_board(
    still: Boards,
) -> None:
    shown = still(STORY, offers={"grow": True})
    shown.keys("End", "ArrowDown", "t", "/")
    shown.root.focus()
    controls = shown.page.evaluate(
        f"""[...{BOARD}.querySelectorAll('button, input, select, .drawer-body')]
        .filter(node => !node.disabled && node.checkVisibility()).length"""
    )
    seen = set()
    for _ in range(controls + 5):
        shown.press("Tab")
        name, outline = shown.page.evaluate(
            f"""(() => {{ const node = {BOARD}.getRootNode().activeElement; if (!node) return ["", ""];
            const all = [...{BOARD}.querySelectorAll('*')]; const style = getComputedStyle(node);
            return [String(all.indexOf(node)), style.outlineStyle + style.outlineWidth]; }})()"""
        )
        if not name:
            break
        seen.add(name)
        assert outline != "none0px", name
    else:
        pytest.fail("Tab never left the board")
    assert len(seen) >= controls


def test_opened_panels_are_no_wider_than_the_screen(board: Boards) -> None:
    shown = board(width=390, reduced_motion="reduce")
    shown.feed(STORY, offers={"grow": True})
    shown.keys("End")
    for keys, opened in OPENED.items():
        shown.press(*keys.split())
        expect(shown.find(opened).first).to_be_visible()
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390, opened


def test_without_motion_nothing_is_animated(still: Boards) -> None:
    shown = still(STORY, autoplay=True)
    assert shown.page.evaluate(f"{BOARD}.getAnimations({{ subtree: true }}).length") == 0
    shown.keys("Home", "End")
    assert not shown.inside("tree.boxes.values().some(box => box.at.x !== box.target.x)")
