"""A tree larger than its picture is drawn with few elements, and nothing is lost."""

import re
from pathlib import Path

import pytest
from board_page import BOARD, BoardPage, Boards
from invented_runs import invented_run
from playwright.sync_api import Locator, expect

from eab.run import fold

pytestmark = pytest.mark.browser
LARGE = fold(invented_run(5, 30, 256))
TEXTS = sum(path.status in ("live", "finished") for path in LARGE.paths)
MOST = 4000  # elements


@pytest.fixture
def shown(still: Boards) -> BoardPage:
    page = still(LARGE)
    page.keys("End", "b")  # show all branches
    return page


def elements(shown: BoardPage) -> int:
    return int(shown.page.evaluate(f"{BOARD}.getRootNode().querySelectorAll('*').length"))


def summarised(shown: BoardPage) -> int:
    """The number of texts in the boxes that stand for whole branches."""
    words = shown.find(".box.summary:not(.hidden) .summary-words").all_text_contents()
    of_texts = [re.fullmatch(r"(\d+) texts?, <?[\d.]+%|\d+ dropped", one) for one in words]
    assert all(of_texts), words
    assert not any(one.startswith("0 ") for one in words), words
    return sum(int(found[1] or 0) for found in of_texts if found)


def count_of(summary: Locator) -> int:
    """The number of texts that a summary box stands for; 0 if all were dropped."""
    found = re.match(r"(\d+) text", summary.text_content() or "")
    return int(found[1]) if found else 0


def test_small_branches_have_one_box_from_afar_and_unfold_up_close(shown: BoardPage) -> None:
    assert TEXTS > 200
    leaves = shown.find(".box.path:is(.live, .finished):not(.hidden)")
    assert summarised(shown) > TEXTS / 2
    assert summarised(shown) + leaves.count() == TEXTS
    assert elements(shown) < MOST
    before = shown.find(".box.path").count()
    first = shown.find(".box.summary").first
    assert first.get_attribute("role") == "treeitem"
    assert "texts" in (first.get_attribute("aria-label") or "")
    most = max(shown.find(".box.summary").all(), key=count_of)
    branch, count = int(most.get_attribute("data-branch") or -1), count_of(most)
    most.click()
    expect(shown.box(branch)).to_be_visible()
    near = shown.find(".box.path:not(.hidden) .label").all_text_contents()
    assert count <= len(near) < TEXTS
    assert all(near), "its words can be read"
    assert elements(shown) < MOST
    shown.keys("w")
    assert shown.find(".box.path").count() == before


def test_there_are_few_elements_at_every_scale(shown: BoardPage) -> None:
    for _ in range(16):
        shown.button("Zoom in").click()
        assert elements(shown) < MOST
    assert not shown.find(".box.summary").count()


def test_the_keys_reach_every_text_even_in_small_branches(shown: BoardPage) -> None:
    shown.press("ArrowDown")
    seen = set()
    for _ in range(30):
        shown.press("ArrowDown")
        path = shown.selected()["path"]
        expect(shown.box(path)).to_have_class(re.compile("highlighted"))
        seen.add(path)
    assert len(seen) == 30
    focused = f"{BOARD}.getRootNode().activeElement.dataset.path"
    assert int(shown.page.evaluate(focused)) == path


def test_the_downloaded_picture_contains_every_text(shown: BoardPage) -> None:
    before = elements(shown)
    with shown.page.expect_download() as waiting:
        shown.button("Download the tree of texts as SVG").click()
    svg = Path(waiting.value.path()).read_text(encoding="utf-8")
    drawn = set(re.findall(r'data-path="(\d+)"', svg))
    assert drawn == {str(path.id) for path in LARGE.paths if path.tokens}
    assert "summary" not in svg
    assert elements(shown) == before


@pytest.mark.slow
def test_presented_lines_that_do_not_fit_the_picture_are_partly_shown(screen: Boards) -> None:
    """If no box fits as a whole, part of the lines is more useful than an empty picture."""
    words = [" a", " girl", " who", " loved", " to", " play", " outside", " all", " day", " long"]
    shown = screen(1024, 768, reduced_motion="reduce")
    shown.feed(fold(invented_run(5, 300, 64, words)))
    shown.keys("p", "End")
    shown.page.wait_for_timeout(200)
    assert shown.find(".box.path:not(.hidden)").count() > 3
    seen = shown.find(".box.path:not(.hidden, .cut)")
    assert seen.count() > 3
    assert all(seen.all_text_contents())


@pytest.mark.parametrize(("steps", "banded"), [(60, False), (1200, True)])
def test_with_many_steps_a_band_is_drawn_instead_of_the_lines(
    still: Boards, steps: int, banded: bool
) -> None:
    run = fold(invented_run(1, steps, 3))
    assert len(run.leaves()) == 5
    shown = still(run)
    shown.keys("End")
    band, key = shown.find("svg.entropy .spread"), shown.page.get_by_text("all paths, quartiles")
    assert shown.find("polyline.trace").count() > 1
    expect(key).to_be_visible(visible=banded)
    if banded:
        expect(band.first).to_be_visible()
    else:
        expect(band.filter(visible=True)).to_have_count(0)
