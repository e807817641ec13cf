"""The board on one screen: all pictures fit its height, and nothing moves them."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from board_page import BoardPage, Boards
from browser_steps import box_of
from invented_runs import WORDS, invented_run
from made_runs import bundled_run
from msgspec import structs
from playwright.sync_api import FloatRect, Page, expect

from eab.figures.captions import limit_sentence
from eab.lessons import bundled_runs
from eab.run import RunState, fold

pytestmark = [pytest.mark.browser, pytest.mark.slow]
EVENTS = invented_run(5, 20, 8)
STORY = fold(EVENTS)
RECORDED = [fold(bundled_runs.events_of(one)) for one in bundled_runs.recordings()]
BRIDGE = bundled_run("bridge")
LIMITED = next(
    run for run in RECORDED if run.started.config.policy == "fair" and limit_sentence(run)
)
SVG = "{http://www.w3.org/2000/svg}"
LINK = {"query": "example=one.eab", "words": "Opens this run."}


def outside(page: Page, width: int, height: int) -> list[str]:
    """The pictures, or the scrubber, that are not entirely inside the window."""
    found = []
    for name in ("svg.tree", "svg.entropy", "svg.memory", ".transport input"):
        box = box_of(page.locator(name).last)
        inside = box["x"] >= 0 and box["y"] >= 0 and box["x"] + box["width"] <= width
        if not inside or box["y"] + box["height"] > height or box["height"] < 15:
            found.append(f"{name} {box}")
    return found


# The font sizes on the screen of the words that the last row of a room must be able to read.
TEXT_SIZES = """() => {
  const root = document.getElementById("host").shadowRoot;
  const what = ".tree .path:not(.stub) .label, .tree .prompt .label, .share, .weight, .tick-label, " +
    ".axis-title, .threshold-label, h2, .sentence, .key-entry, .step-label";
  const seen = [...root.querySelectorAll(what)].filter((one) => one.getClientRects().length);
  return Object.fromEntries(seen.map((one) => {
    const drawn = one.getScreenCTM?.().a ?? 1;
    return [(one.className.baseVal ?? one.className) || one.localName, parseFloat(getComputedStyle(one).fontSize) * drawn];
  }));
}"""


@pytest.mark.parametrize(
    ("size", "by_step"),
    [((1024, 768), False), ((1366, 768), True), ((1920, 1080), False)],
)
def test_the_presenter_shows_all_pictures_in_large_type_without_downloads(
    screen: Boards, size: tuple[int, int], by_step: bool
) -> None:
    shown = screen(*size, reduced_motion="reduce")
    shown.feed(LIMITED, offers={"link": LINK})
    expect(shown.button("PNG").first).to_be_visible()
    shown.keys("p")
    expect(shown.find(".eab.presenting")).to_be_visible()
    if by_step:
        shown.button("By step").click()
    shown.page.wait_for_timeout(300)
    assert outside(shown.page, *size) == []
    controls = "h2, .tools button, .transport :is(button, input, output)"
    assert shown.not_whole(controls) == []
    assert shown.button("PNG").filter(visible=True).count() == 0
    expect(shown.button("Copy link")).to_be_hidden()
    sizes = shown.page.evaluate(TEXT_SIZES)
    seen = {name.split()[0] for name in sizes}
    assert {"label", "tick-label", "axis-title", "h2", "sentence", "step-label"} <= seen
    assert by_step or {"share", "weight"} <= seen
    assert {name: drawn for name, drawn in sizes.items() if drawn < 23.99} == {}
    shown.press("Escape")
    expect(shown.find(".eab.presenting")).to_have_count(0)


CODE = [
    *("    self.assertAlmostEqual(first_value,", " mean(list_of_values),", " places=7)", "\n"),
    *("    return", " sorted(self._children_of(path),", " key=operator.itemgetter(0))", "\n"),
]
# The lines of each box, the prompt's first, and the size of their letters on the screen.
LINES = """() => {
  const labels = document.getElementById("host").shadowRoot.querySelectorAll(
    ".tree .prompt .label, .tree .path:not(.stub, .hidden) .label");
  return [...labels].map((label) => {
    const lines = {};
    for (const part of label.querySelectorAll("tspan"))
      lines[part.getAttribute("y")] = (lines[part.getAttribute("y")] ?? "") + part.textContent;
    const size = parseFloat(getComputedStyle(label).fontSize) * label.getScreenCTM().a;
    return [Object.values(lines), size];
  });
}"""


@pytest.mark.parametrize("seed", [1, 5])
def test_code_keeps_its_lines_and_its_long_words_whole(screen: Boards, seed: int) -> None:
    run = fold(invented_run(seed, 12, 5, CODE))
    started = structs.replace(
        run.started, prompt="def test_the_mean_of_all_values_of_a_list(self):"
    )
    run.started = started
    shown = screen(1366, 768, reduced_motion="reduce")
    shown.feed(run)
    (prompt, _), *found = shown.page.evaluate(LINES)
    assert "test_the_mean_of_all_values_of_a_list(self):" in [line.strip() for line in prompt]
    words = {word.strip() for word in CODE if len(word) > 24}
    lines = [line for each, _ in found for line in each]
    assert min(size for _, size in found) > 10.99
    assert all("↵" not in line.rstrip("↵ ") and "…" not in line for line in lines)
    seen = [word for line in lines for word in line.replace("↵", " ").split()]
    assert words & set(seen)
    assert set(seen) - {word.strip() or "↵" for word in CODE} - {"return"} == set()


# The numbers of the entropy axis that the threshold's would cover, and of those, the visible ones.
COVERED = """() => {
  const chart = document.getElementById("host").shadowRoot.querySelector("svg.entropy");
  const { y, height } = chart.querySelector(".threshold-label").getBoundingClientRect();
  const ticks = [...chart.querySelectorAll(".tick-label.end")];
  const covered = ticks.filter(
    (tick) => Math.abs(tick.getBoundingClientRect().y - y) < 0.7 * height);
  const visible = covered.filter((tick) => getComputedStyle(tick).visibility === "visible");
  return [covered.length, visible.length];
}"""


def test_the_number_of_the_threshold_covers_none_that_can_be_seen(screen: Boards) -> None:
    shown = screen(1024, 768, reduced_motion="reduce")
    shown.feed(bundled_run("bridge"))
    shown.keys("p")
    expect(shown.find(".eab.presenting")).to_be_visible()
    shown.page.wait_for_timeout(300)
    covered, visible = shown.page.evaluate(COVERED)
    assert (covered > 0, visible) == (True, 0)


def cursor_line(shown: BoardPage, step: int) -> FloatRect:
    """Wait until the cursor is at this step; return the box of its line in the entropy chart."""
    shown.expect_cursor(step)
    return box_of(shown.find("svg.entropy line.cursor"))


def test_presented_charts_are_enlarged_and_a_click_still_finds_its_step(screen: Boards) -> None:
    shown = screen(1024, 768, reduced_motion="reduce")
    shown.feed(STORY)
    shown.keys("p")
    expect(shown.find(".eab.presenting")).to_be_visible()
    shown.press("Home")
    start = cursor_line(shown, 0)
    shown.press("End")
    end = cursor_line(shown, 19)
    middle = start["x"] + (end["x"] - start["x"]) * 7 / 19
    shown.page.mouse.click(middle, start["y"] + start["height"] / 2)
    shown.expect_cursor(7)


def test_a_remote_control_goes_from_fork_to_fork_whatever_has_the_focus(screen: Boards) -> None:
    shown = screen(1024, 768, reduced_motion="reduce")
    shown.feed(STORY)
    forks = sorted({path.born for path in STORY.paths if path.parent >= 0} | {0, 19})
    shown.keys("Home", "PageDown")
    shown.expect_cursor(0)  # these keys belong to the page until it presents
    shown.press("p")
    shown.find(".transport input").focus()
    for step in forks[1:]:
        shown.press("PageDown")
        shown.expect_cursor(step)
    shown.press("PageDown")
    shown.expect_cursor(19)
    shown.button("Play").focus()
    for step in forks[-2::-1]:
        shown.press("PageUp")
        shown.expect_cursor(step)


def test_the_drawer_covers_the_charts_and_escape_closes_it(screen: Boards) -> None:
    shown = screen(1090, 660, reduced_motion="reduce")
    shown.feed(STORY)
    shown.root.focus()
    drawer = shown.find(".drawer")
    for key, title in (("ArrowDown", "Text and token"), ("t", "Tables"), ("?", "Help")):
        shown.press(key)
        expect(drawer.locator("h2")).to_have_text(title)
        box = box_of(drawer)
        assert box["x"] > 600
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 660
        shown.press("Escape")
        expect(drawer).to_be_hidden()
    shown.press("ArrowDown")
    shown.button("Close (Escape)").first.click()
    expect(drawer).to_be_hidden()
    expect(shown.find(".eab.highlighting")).to_have_count(0)


def test_a_replay_has_a_caption_for_each_fork(board: Boards) -> None:
    shown = board()
    run = BRIDGE
    shown.feed(run, autoplay=True)
    caption = shown.find(".tree-panel .sentence")
    expect(caption).to_contain_text("so the text branches")
    said = caption.text_content() or ""
    found = re.match(r"Step (\d+): unsure, (\d+\.\d\d) nats \(threshold \d\.\d\d\)", said)
    born = [path for path in run.paths if path.parent >= 0 and path.born == int(found[1])]
    named = [path for path in born if f"“{path.tokens[0].text.strip()}” {path.share:.0%}" in said]
    assert len(named) >= 2
    assert f"{named[0].tokens[0].entropy:.2f}" == found[2]


def test_shares_are_on_the_edges_and_weights_after_the_texts(board: Boards) -> None:
    shown = board(reduced_motion="reduce")
    for name, run in enumerate(RECORDED[1:7]):
        shown.feed(run, name=f"run {name}")
        shown.keys("End")
        weights = shown.find(".box.path:not(.hidden) .weight").all_text_contents()
        numbers = [float(text.strip("<%")) for text in weights if text]
        assert len(numbers) == (len(run.leaves()) if len(run.paths) > 1 else 0)
        assert not numbers or sum(numbers) == pytest.approx(100, abs=0.6 * len(numbers))
        note = shown.find(".limit-note")
        if limit_sentence(run):
            expect(note).to_contain_text(limit_sentence(run))
        else:
            expect(note).to_be_hidden()


def test_a_click_explains_why_weights_are_not_products_of_shares(still: Boards) -> None:
    shown = still(LIMITED)
    shown.button("Why?").click()
    expect(shown.find(".drawer")).to_contain_text("the product of the shares")
    body, topic = (box_of(shown.find(name)) for name in (".drawer-body", ".limit-topic"))
    assert -1 < topic["y"] - body["y"] < body["height"] / 2  # scrolled to within a pixel


def test_the_link_is_copied_with_the_step(board: Boards) -> None:
    shown = board(reduced_motion="reduce")
    shown.page.evaluate(
        "Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => { window.copied = text; } } })"
    )
    shown.feed(STORY)
    expect(shown.button("Copy link")).to_be_hidden()
    shown.feed(STORY, offers={"link": LINK})
    shown.keys("Home", "ArrowRight", "ArrowRight")
    shown.button("Copy link").click()
    expect(shown.find(".copied")).to_have_text("Copied. Opens this run.")
    assert shown.page.evaluate("copied") == f"{shown.page.url}?example=one.eab&cursor=2"


def test_the_buttons_run_at_and_reset_are_next_to_the_line_of_a_what_if(board: Boards) -> None:
    shown = board(reduced_motion="reduce")
    offers = {"what_if": True, "run_at": True}
    shown.feed(STORY, offers=offers)
    bar = shown.find(".what-if")
    expect(bar).to_be_hidden()
    shown.feed(STORY, offers=offers, what_if="0.9 16", notes={"entropy": "Recomputed."})
    threshold = STORY.started.threshold_nats
    expect(shown.find(".entropy-panel .sentence")).to_have_text("Recomputed.")
    bar.get_by_role("button", name=f"Run at {threshold:.2f}").click()
    bar.get_by_role("button", name="Reset").click()
    shown.page.get_by_label("Growth step r").select_option("4")
    assert shown.page.evaluate("triggers") == ["run_at", "what_if", "what_if"]
    ran, reset, grown = shown.page.evaluate("requests")
    assert ran == {"run": "one", "threshold": pytest.approx(threshold)}
    assert reset == {"run": "one", "threshold": None, "r": None}
    assert grown["r"] == 4


def test_a_picture_has_title_step_and_legend_and_its_texts_stay_in_their_boxes(
    still: Boards, tmp_path: Path
) -> None:
    shown = still(fold(invented_run(5, 20, 8, [*WORDS, " WWWWWWWW", "iiiiiiiii"])))
    with shown.page.expect_download() as waiting:
        shown.button("SVG: Download the tree of texts").click()
    file = tmp_path / "tree.svg"
    waiting.value.save_as(file)
    words = [text.text or "" for text in ElementTree.parse(file).getroot().iter(f"{SVG}text")]
    assert "Tree of texts, step 19 of 19" in words
    assert {"sure", "fairly sure", "◆ fork"} <= set(words)
    alone = shown.page.context.new_page()
    alone.goto(file.as_uri())
    alone.evaluate("document.documentElement.style.fontFamily = 'serif'")
    alone.evaluate(
        "for (const text of document.querySelectorAll('text')) text.style.fontFamily = 'monospace'"
    )
    too_wide = alone.evaluate(
        """[...document.querySelectorAll('.box')].filter((box) => {
          const [frame, label] = ['.frame', '.label'].map((name) => box.querySelector(name)?.getBoundingClientRect());
          return frame && label && (label.left < frame.left || label.right > frame.right);
        }).map((box) => box.textContent)"""
    )
    assert too_wide == []


# The boxes, at every step of a run, whose words are taller than their frames.
OVERFLOWING = """() => {
  const root = document.getElementById("host").shadowRoot;
  const board = root.__board;
  const found = [];
  for (let step = 0; step <= board.store.lastStep; step += 1) {
    board.send("goTo", step);
    board.render();
    for (const box of root.querySelectorAll(".box.path:not(.hidden, .stub)")) {
      const [words, frame] = [".label", ".frame"].map((name) => box.querySelector(name).getBBox());
      const [below, above] = [words.y + words.height - frame.y - frame.height, frame.y - words.y];
      if (Math.max(below, above) > 4) found.push([step, box.dataset.path, below, above]);
    }
  }
  return found;
}"""


@pytest.mark.parametrize(
    ("width", "runs"), [(780, RECORDED[::4]), (1090, RECORDED[2::4])], ids=["narrow", "wide"]
)
def test_words_stay_in_their_boxes_at_every_step(
    screen: Boards, width: int, runs: list[RunState]
) -> None:
    shown = screen(width, 660, reduced_motion="reduce")
    for number, run in enumerate(runs):
        shown.feed(run, name=f"run {number}")
        assert shown.page.evaluate(OVERFLOWING) == [], run.started.prompt
