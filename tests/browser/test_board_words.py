"""Words on the board are not cut: sentences and legends next to pictures, texts in large type."""

import pytest
from board_page import Boards
from made_runs import bundled_run

pytestmark = [pytest.mark.browser, pytest.mark.slow]
RUNS = {name: bundled_run(name) for name in ("bridge", "rare", "long", "recipe")}
# The height, at every fourth step, that the picture of the KV cache leaves for its bars.
BARS = """async () => {
  const root = document.getElementById("host").shadowRoot;
  const board = root.__board;
  const heights = [];
  const frame = () => new Promise(requestAnimationFrame);
  for (let step = 0; step <= board.store.lastStep; step += 4) {
    board.send("goTo", step);
    for (let count = 0; count < 4; count += 1) await frame();
    const lines = [...root.querySelectorAll("svg.memory .grid")];
    const tops = lines.map((line) => line.getBoundingClientRect().top);
    const picture = root.querySelector("svg.memory").getBoundingClientRect();
    heights.push(tops.length ? Math.max(...tops) - picture.top : 100);
  }
  return heights;
}"""
# Boxes cut at an edge of the picture, and lines with part of a word, at every fourth step.
BROKEN = """async () => {
  const root = document.getElementById("host").shadowRoot;
  const board = root.__board;
  const wordsOf = (text) => text.split(/[ …↵]+/).filter(Boolean);
  const found = [];
  const frame = () => new Promise(requestAnimationFrame);
  for (let step = 0; step <= board.store.lastStep; step += 4) {
    board.send("goTo", step);
    for (let count = 0; count < 4; count += 1) await frame(); // a sentence may have two lines
    const picture = root.querySelector("svg.tree").getBoundingClientRect();
    if (!root.querySelector("svg.tree .box.path:not(.hidden, .cut)")) found.push([step, "empty"]);
    for (const box of root.querySelectorAll("svg.tree .box:not(.hidden, .cut, .stub)")) {
      const path = board.store.paths.get(Number(box.dataset.path ?? -1));
      const text = path
        ? path.tokens.slice(0, step - path.born + 1).map(({ piece }) => piece).join("")
        : board.store.run.prompt;
      const words = new Set(wordsOf(text));
      for (const { textContent } of box.querySelectorAll(".label > tspan")) {
        for (const word of wordsOf(textContent)) if (!words.has(word)) found.push([step, word, text]);
      }
      for (const part of box.querySelectorAll(".frame, .label, .weight, .mark")) {
        const { left, right, top, bottom, width } = part.getBoundingClientRect();
        const isIn = left >= picture.left - 1 && right <= picture.right + 1 &&
          top >= picture.top - 2 && bottom <= picture.bottom + 2;
        if (width && !isIn) found.push([step, part.getAttribute("class"), text]);
      }
    }
  }
  return found;
}"""


@pytest.mark.parametrize("size", [(1064, 661), (732, 688), (1048, 520)])
def test_no_sentence_or_legend_is_cut(screen: Boards, size: tuple[int, int]) -> None:
    shown = screen(*size, reduced_motion="reduce")
    for name, run in RUNS.items():
        shown.feed(run, name=name)
        shown.keys("End", "d")
        assert shown.not_whole("h2, .sentence, .key, .key-entry, .limit-note span") == [], name


@pytest.mark.parametrize("size", [(1024, 768), (1366, 768)])
def test_presented_boxes_and_the_words_in_them_are_not_cut(
    screen: Boards, size: tuple[int, int]
) -> None:
    shown = screen(*size, reduced_motion="reduce")
    for name, run in RUNS.items():
        shown.feed(run, name=name)
        if not shown.find(".eab.presenting").count():
            shown.keys("p")
        shown.page.wait_for_timeout(200)
        assert shown.page.evaluate(BROKEN) == [], name
        assert min(shown.page.evaluate(BARS)) > 60, name
        assert shown.find(".box.path:not(.hidden, .cut)").count() >= 3
