"""Which branches of the tree are drawn, and reading a text in full, in a real Chromium."""

import pytest
from board_page import Boards
from invented_runs import invented_run
from made_runs import bundled_run
from playwright.sync_api import expect

from eab.analysis.answers import group_answers
from eab.run import fold

pytestmark = pytest.mark.browser
STORY = fold(invented_run(5, 20, 8))
REAL = bundled_run("ball")


def test_a_hidden_branch_is_left_out_until_all_are_shown_again(still: Boards) -> None:
    shown = still(STORY)
    shown.root.focus()
    everything = shown.drawn_paths()
    branch = next(STORY.paths[path] for path in everything if path and STORY.paths[path].children)
    shown.select(branch.id, 0)
    shown.button("Hide this branch").click()
    gone = {one.id for one in STORY.paths if branch.id in STORY.lineage(one.id)}
    assert shown.drawn_paths() == everything - gone < everything
    show_all = shown.button("Show all")
    show_all.click()
    assert shown.drawn_paths() == {path.id for path in STORY.paths} > everything
    show_all.click()
    assert shown.drawn_paths() == everything


def test_small_branches_fold_into_a_mark_and_a_click_unfolds_them(still: Boards) -> None:
    shown = still(REAL)
    pruned = [path for path in REAL.paths if path.status == "pruned"]
    forks = {path.parent for path in pruned}
    assert not shown.drawn_paths() & {path.id for path in pruned}
    marks = shown.find(".fold").filter(has_text=" more")
    texts = marks.evaluate_all("marks => marks.map((mark) => mark.firstChild.data)")
    assert sum(int(text.split()[0]) for text in texts) >= len(forks)
    fork = int(marks.first.get_attribute("data-fork") or "")
    before = shown.drawn_paths()
    marks.first.click()
    opened = shown.drawn_paths() - before
    assert {path for path in opened if REAL.paths[path].parent == fork}
    shown.keys("b")
    assert shown.drawn_paths() == {path.id for path in REAL.paths if path.tokens}
    shown.press("b")
    assert shown.drawn_paths() == before


def test_texts_with_the_same_answer_share_a_box_with_their_total_weight(still: Boards) -> None:
    run = bundled_run("market")
    shown = still(run)
    apart = shown.drawn_paths()
    shown.button("Same answers").click()
    *several, flour = group_answers(run, "sentence").ranked
    roots = [max(set.intersection(*map(set, map(run.lineage, one.leaves)))) for one in several]
    joined = {*roots, *flour.leaves}
    assert shown.drawn_paths() == joined < apart
    for answer, root in zip(several, roots, strict=True):
        expect(shown.box(root).locator(".weight")).to_have_text(f"{answer.estimate:.0%}")
        name = shown.box(root).get_attribute("aria-label") or ""
        assert name.startswith(f"{len(answer.leaves)} texts with the answer “{answer.name}”")
        assert name.endswith(run.text(answer.leaves[0]).strip()), "the heaviest text"
    shown.feed(run)
    assert shown.drawn_paths() == joined, "the same run came again"
    shown.box(roots[0]).locator(".fold").click()
    assert {*several[0].leaves, *flour.leaves, roots[1]} < shown.drawn_paths()
    shown.keys("a")
    assert shown.drawn_paths() == apart


def test_a_box_of_several_texts_is_read_and_navigated_as_its_heaviest_text(still: Boards) -> None:
    run = bundled_run("market")
    shown = still(run)
    shown.keys("a", "End")
    heaviest = group_answers(run, "sentence").ranked[0].leaves[0]
    first = run.lineage(heaviest)[1]
    shown.point_at(first, -1, clicks=True)
    assert shown.selected()["path"] == heaviest
    expect(shown.find(".reading-head")).to_contain_text("of 3, weight")
    words = "".join(shown.find(".reading-text > [data-path]").all_text_contents())
    assert words == run.text(heaviest)
    shown.point_at(first, 0, clicks=True)
    assert shown.selected() == {"path": first, "token": 0}
    shown.keys("ArrowDown")
    assert heaviest != shown.selected()["path"]
    shown.press("ArrowUp")
    assert shown.selected()["path"] == heaviest


def test_in_a_narrow_picture_texts_are_shortened_before_others_are_folded(still: Boards) -> None:
    run = bundled_run("cake")
    shown = still(run)
    shown.keys("End")
    for width, height in ((728, 560), (728, 720), (700, 640), (860, 560)):
        shown.page.set_viewport_size({"width": width, "height": height})
        shown.page.wait_for_timeout(150)
        assert shown.drawn_paths() == {path.id for path in run.paths if path.tokens}, width


def test_search_finds_a_word_that_its_box_does_not_show(still: Boards) -> None:
    run = bundled_run("capital")
    shown = still(run)
    shown.keys("a")
    assert shown.drawn_paths() == {0}, "both texts give one answer"
    lightest = min(run.leaves(), key=lambda leaf: leaf.weight)
    shown.press("/")
    shown.page.keyboard.type(run.text(lightest.id)[-8:])
    shown.press("Enter")
    assert shown.selected()["path"] == lightest.id in shown.drawn_paths()


@pytest.mark.slow
def test_a_text_can_be_read_in_full_with_its_forks_then_the_next_text(still: Boards) -> None:
    shown = still(REAL)
    shown.keys("End", "ArrowDown")
    read = set()
    previous, following = (
        shown.find(".reading").get_by_role("button", name=name)
        for name in ("Text above", "Text below")
    )
    texts = [path for path in REAL.paths if path.id in shown.drawn_paths() and not path.children]
    for _ in texts:
        previous.click()
    for number, _ in enumerate(texts, start=1):
        expect(shown.find(".reading-head")).to_contain_text(f"text {number} of {len(texts)}")
        parts = shown.find(".reading-text > [data-path]").all_text_contents()
        read.add("".join(parts))
        forks = shown.find(".reading-fork").count()
        leaf = shown.selected()["path"]
        assert forks == len([one for one in REAL.lineage(leaf) if REAL.paths[one].children])
        following.click()
    assert len(read) == len(texts)
    shown.find(".reading-text > [data-path]").first.click()
    assert shown.selected()["token"] == 0


def test_percentages_of_candidates_are_visible_in_both_layouts(still: Boards) -> None:
    shown = still(REAL)
    shown.keys("End", "ArrowDown")
    for _ in range(2):
        expect(shown.find(".candidates .number").first).to_be_visible()
        expect(shown.find(".candidates .number").first).to_contain_text("%")
        shown.button("By step").click()


TOO_SMALL = """texts => texts.filter((text) =>
    text.textContent.trim() && text.checkVisibility({ visibilityProperty: true }))
  .map((text) => [text.textContent, parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a])
  .filter(([_, size]) => size < 10.99)"""


@pytest.mark.parametrize("name", ["bridge", "long", "recipe"])
def test_no_text_of_a_tree_is_too_small_to_read_and_a_fold_says_what_it_stands_for(
    screen: Boards, name: str
) -> None:
    run = bundled_run(name)
    shown = screen(
        1064, 662, reduced_motion="reduce"
    )  # what a window of 1366 x 768 leaves to the board
    shown.feed(run)
    expect(shown.find(".box.path:not(.hidden)").first).to_be_visible()
    shown.keys("End")
    assert shown.find("svg.tree text").count() > 5
    assert shown.find("svg.tree text").evaluate_all(TOO_SMALL) == []
    weights = [path.weight for path in run.leaves() if path.id in shown.drawn_paths()]
    marks = shown.find(":not(.hidden) > .fold").evaluate_all(
        "all => all.map((one) => one.firstChild.data)"
    )
    folded = [float(mark.split(", ")[1].rstrip("%")) / 100 for mark in marks if "%" in mark]
    assert sum(weights) + sum(folded) == pytest.approx(1.0, abs=0.05)
    assert weights


def test_a_line_of_the_text_ends_a_line_of_its_box(still: Boards) -> None:
    shown = still(fold(invented_run(5, 20, 4, [" return", " x", ":\n", "\n\n", "   "])))
    shown.keys("End")
    lines = shown.find(".box.path:not(.hidden) .label tspan").all_text_contents()
    breaks = [line for line in lines if "↵" in line]
    assert breaks
    assert not [line for line in breaks if line.strip("↵").count("↵") or not line.endswith("↵")]
