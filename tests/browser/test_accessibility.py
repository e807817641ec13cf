"""For users who cannot see the picture, use no mouse, or want no motion: axe, keyboard, contrast,
narrow screens.
"""

from pathlib import Path

import pytest
from axe import grave_findings
from board_page import BOARD, DARK, LIGHT, BoardPage, Boards
from browser_steps import OpenPage
from contrast import contrast
from invented_runs import invented_run
from made_runs import bundled_run
from playwright.sync_api import expect

from eab.run import fold
from eab.share.html_page import save_html

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


def test_the_tree_has_its_aria_roles_and_says_what_it_shows(still: Boards) -> None:
    shown = still(STORY, offers={"grow": True})
    expect(shown.page.get_by_role("tree")).to_have_count(1)
    assert shown.page.get_by_role("treeitem").count() > 5
    expect(shown.find("p.visually-hidden[aria-live]")).to_contain_text("fork")


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_marks_and_words_have_enough_contrast(board: Boards, theme: str) -> None:
    """WCAG 2.2 requires 3:1 for marks that carry meaning and 4.5:1 for small words, in the colours
    that the browser computes.
    """
    shown = board(theme, reduced_motion="reduce")
    shown.feed(STORY)
    ground = _colour(shown, "var(--eab-panel)")
    for name in ("shared", "private", "spare", "fork", "finished", "sure", "fairly-sure", "unsure"):
        assert contrast(_colour(shown, f"var(--{name})"), ground) >= 3, name
    for name in ("eab-ink", "eab-soft", "fork"):
        for behind in (ground, _colour(shown, "var(--eab-ground)")):
            assert contrast(_colour(shown, f"var(--{name})"), behind) >= 4.5, name


def _colour(shown: BoardPage, value: str) -> list[float]:
    """The red, green and blue (0 to 255) of a CSS colour, as drawn on a canvas."""
    drawn = shown.page.evaluate(
        f"""value => {{ const probe = document.createElement('i'); {BOARD}.append(probe); probe.style.color = value;
        const pen = document.createElement('canvas').getContext('2d'); pen.fillStyle = getComputedStyle(probe).color;
        probe.remove(); pen.fillRect(0, 0, 1, 1); return [...pen.getImageData(0, 0, 1, 1).data]; }}""",
        value,
    )
    return [float(part) for part in drawn[:3]]


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
    moving = f"[...{BOARD}.getRootNode().__board.tree.boxes.values()].some(box => box.at.x !== box.target.x)"
    assert shown.page.evaluate(moving) is False
