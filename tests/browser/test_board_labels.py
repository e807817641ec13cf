"""The words in the boxes of the tree."""

import pytest
from board_page import Boards

from eab.lessons import bundled_runs
from eab.run import fold

pytestmark = [pytest.mark.browser, pytest.mark.slow]
RECORDED = [fold(bundled_runs.events_of(one)) for one in bundled_runs.recordings()]
# At every step of a run: the boxes whose words are taller than their frames.
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


@pytest.mark.parametrize("size", [(780, 660), (1090, 660)])
def test_words_stay_in_their_boxes_at_every_step(screen: Boards, size: tuple[int, int]) -> None:
    shown = screen(*size, reduced_motion="reduce")
    for number, run in enumerate(RECORDED):
        shown.feed(run, name=f"run {number}")
        assert shown.page.evaluate(OVERFLOWING) == [], run.started.prompt
