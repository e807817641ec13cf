"""The board on a phone: an outline of whole texts instead of the tree, the other pictures below."""

from typing import Any

import pytest
from axe import grave_findings
from board_page import DARK, LIGHT, BoardPage, Boards
from browser_steps import box_of
from invented_runs import invented_run
from made_runs import bundled_run
from playwright.sync_api import expect

from eab.board.messages import board_message
from eab.run import RunState, fold

pytestmark = [pytest.mark.browser, pytest.mark.slow]
RUNS = {name: bundled_run(name) for name in ("bent", "sum", "bridge", "recipe", "long")}
CHAT = RUNS["recipe"]
# Words of the outline that are empty, cut off, or not entirely inside their box.
FAULTS = """() => {
  const found = [], root = document.getElementById("host").shadowRoot;
  // What is out of sight is laid out, too.
  for (const item of root.querySelectorAll(".outline-item")) item.style.contentVisibility = "visible";
  for (const body of root.querySelectorAll(".outline-body")) {
    if (!body.querySelector(".outline-text").innerText.trim()) found.push("empty");
    if (body.scrollWidth > body.clientWidth || body.scrollHeight > body.clientHeight + 1) found.push("cut");
    const { left, right, top, bottom } = body.getBoundingClientRect();
    for (const token of body.querySelectorAll(".token")) {
      const box = token.getBoundingClientRect();
      const isIn = box.left >= left - 1 && box.right <= right + 1 && box.top >= top - 1;
      if (!isIn || box.bottom > bottom + 1) found.push(token.textContent);
    }
  }
  return found;
}"""


def phone(
    board: Boards, run: RunState, width: int, height: int, theme: str = LIGHT, **more: Any
) -> BoardPage:
    shown = board(theme, width=width, reduced_motion="reduce")
    shown.page.set_viewport_size({"width": width, "height": height})
    shown.feed(run, **more)
    return shown


def sent(run: RunState) -> list[dict[str, Any]]:
    """The paths of a run as they are sent to the board."""
    paths: list[dict[str, Any]] = board_message(run)["paths"]
    return paths


def items(shown: BoardPage) -> dict[int, str]:
    """The texts of the outline, by path."""
    texts = shown.find(".outline-item.path").evaluate_all(
        "all => all.map((one) => [Number(one.dataset.path),"
        " [...one.querySelectorAll('.token')].map((token) => token.textContent).join('')])"
    )
    return {path: text.replace("\n", "").strip() for path, text in texts}


@pytest.mark.parametrize(
    ("name", "width", "height"),
    [
        ("bent", 844, 390),
        ("sum", 390, 844),
        ("bridge", 360, 740),
        ("recipe", 360, 740),
        ("long", 390, 844),
    ],
)
def test_the_tree_is_an_outline_of_whole_texts(
    board: Boards, name: str, width: int, height: int
) -> None:
    run = RUNS[name]
    shown = phone(board, run, width, height)
    shown.keys("End")
    expect(shown.find("svg.tree")).not_to_be_visible()
    expect(shown.button("By step")).to_have_attribute("aria-pressed", "false")
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    assert shown.page.evaluate(FAULTS) == []
    texts = items(shown)
    assert texts
    whole = {path["id"]: "".join(token[0] for token in path["tokens"]) for path in sent(run)}
    assert texts == {path: whole[path].strip() for path in texts}
    edge = box_of(shown.find(".outline"))["x"]
    for weight in shown.find(".outline-item.path .outline-weight").all():
        assert box_of(weight)["x"] == pytest.approx(edge, abs=1)
        assert (weight.text_content() or "").endswith("%") == (len(run.paths) > 1)


def test_deeper_forks_are_indented_and_deep_trees_leave_room_for_texts(board: Boards) -> None:
    shown = phone(board, CHAT, 360, 740)
    shown.keys("End")
    left = {
        path: box_of(shown.find(f'.outline-item[data-path="{path}"] .outline-body'))["x"]
        for path in items(shown)
    }
    children = [path for path in CHAT.paths if path.id in left and path.parent in left]
    assert all(left[child.id] >= left[child.parent] for child in children)
    assert any(left[child.id] > left[child.parent] + 3 for child in children)
    assert max(left.values()) - min(left.values()) <= 66


def test_a_tap_opens_the_token_and_the_text_stays_visible(board: Boards) -> None:
    shown = board(width=390, has_touch=True, reduced_motion="reduce")
    shown.page.set_viewport_size({"width": 390, "height": 844})
    shown.feed(CHAT)
    shown.keys("End")
    last = shown.find(".outline-item.path").last
    path = int(last.get_attribute("data-path") or -1)
    token = last.locator(".token").nth(1)
    token.tap()
    expect(shown.find(".drawer h2")).to_have_text("Text and token")
    assert shown.selected() == {"path": path, "token": 1}
    expect(token).to_contain_class("selected")
    chosen, drawer = box_of(token), box_of(shown.find(".drawer"))
    assert chosen["y"] + chosen["height"] <= drawer["y"]
    shown.button("Close (Escape)").first.tap()
    expect(shown.find(".outline .selected")).to_have_count(0)


def test_the_arrow_keys_go_from_text_to_text(board: Boards) -> None:
    shown = phone(board, CHAT, 390, 844)
    shown.keys("End")
    order = list(items(shown))
    for path in order[:4]:
        shown.press("ArrowDown")
        assert shown.selected()["path"] == path
        expect(shown.find(f'.outline-item[data-path="{path}"]')).to_be_focused()


def test_the_outline_shows_text_up_to_the_cursor(board: Boards) -> None:
    run = RUNS["bridge"]
    shown = phone(board, run, 390, 844, autoplay=True)  # without motion, it opens at its end
    assert len(items(shown)) > 4
    shown.keys("Home")
    born = {path.id for path in run.paths if path.tokens and path.born == 0}
    assert set(items(shown)) == born
    assert all(shown.find(f'[data-path="{path}"] .token').count() == 1 for path in born)


def test_small_branches_unfold_when_tapped_and_hidden_branches_disappear(board: Boards) -> None:
    shown = phone(board, CHAT, 390, 844)
    shown.keys("End")
    before = set(items(shown))
    fold_button = shown.find(".outline-fold:visible").first
    fork = int(fold_button.get_attribute("data-fork") or -1)
    fold_button.click()
    new = set(items(shown)) - before
    assert new
    assert {CHAT.paths[path].parent for path in new} >= {fork}
    shown.select(min(new), 0)
    shown.press("x")
    assert min(new) not in items(shown)


@pytest.mark.parametrize(
    ("width", "height", "full_screen"), [(390, 844, False), (360, 740, True), (844, 390, False)]
)
def test_the_presenter_fills_a_phone_with_the_outline_above_the_scrubber(
    board: Boards, width: int, height: int, full_screen: bool
) -> None:
    shown = phone(board, CHAT, width, height)
    if not full_screen:
        refuse = (
            "() => { Element.prototype.requestFullscreen = () => Promise.reject(new Error()); }"
        )
        shown.page.evaluate(refuse)
    shown.keys("End", "p")
    alone = shown.find(".eab:popover-open")
    expect(alone).to_be_visible()
    assert shown.page.evaluate(FAULTS) == []
    first, slider = (
        box_of(shown.find(name)) for name in (".outline-item.prompt", ".transport input")
    )
    assert 0 <= first["y"] <= height / 4
    assert slider["y"] + slider["height"] <= height
    last = shown.find(".outline-item.path").last
    last.scroll_into_view_if_needed()
    assert box_of(last)["y"] < box_of(shown.find(".transport input"))["y"]
    shown.press("p")
    expect(alone).to_have_count(0)


def test_a_long_prompt_shows_its_beginning_and_its_end(board: Boards) -> None:
    shown = phone(board, RUNS["long"], 390, 844)
    text = shown.find(".outline-item.prompt").text_content() or ""
    assert RUNS["long"].started.prompt.startswith(text[:40])
    assert RUNS["long"].started.prompt.endswith(text[-40:])


def test_the_layout_by_step_shows_the_tree_and_so_does_a_wider_window(board: Boards) -> None:
    shown = phone(board, CHAT, 390, 844)
    shown.button("By step").click()
    expect(shown.find("svg.tree")).to_be_visible()
    expect(shown.find(".outline")).to_be_hidden()
    shown.button("By step").click()
    expect(shown.find(".outline")).to_be_visible()
    shown.page.set_viewport_size({"width": 1280, "height": 844})
    expect(shown.find("svg.tree")).to_be_visible()
    expect(shown.find(".box.path:not(.hidden)").first).to_be_visible()


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_axe_finds_no_serious_problem(board: Boards, theme: str) -> None:
    shown = phone(board, fold(invented_run(5, 20, 8)), 390, 844, theme)
    shown.page.evaluate("() => { document.documentElement.lang = 'en'; }")
    shown.keys("End")
    assert grave_findings(shown.page) == []
    shown.press("ArrowDown")
    assert grave_findings(shown.page) == []
