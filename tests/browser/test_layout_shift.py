"""What is visible while a page opens does not move."""

import pytest
from browser_steps import OpenPage
from playwright.sync_api import expect

pytestmark = pytest.mark.browser
# Per page: an element that is drawn last, so that everything above it has its final place.
PAGES = {
    "": ".eab .box.path",
    "learn": ".stMain h1",
    "learn?lesson=forks&stage=2": ".st-key-lesson_picture .eab .box.path",
    "compare": ".eab .box.path",
    "tune": ".js-plotly-plot .xtick",
    "tune?view=threshold": ".st-key-tune_pilot_stop",
    "tune?view=worth": ".js-plotly-plot .xtick",
    "memory": ".js-plotly-plot .xtick",
    "bmc": ".js-plotly-plot .xtick",
    "speculative": ".js-plotly-plot .xtick",
    "batching": ".js-plotly-plot .xtick",
    "batching?view=now": ".js-plotly-plot .xtick",
    "quantization": ".js-plotly-plot .xtick",
}
# The largest sum of shifts at most 1 s apart within 5 s, as browsers define the score of a page.
SCORE = """() => new Promise((done) => {
  let [score, sum, first, last] = [0, 0, -Infinity, -Infinity];
  new PerformanceObserver((list) => {
    for (const { startTime, value, hadRecentInput } of list.getEntries()) {
      if (hadRecentInput) continue;
      if (startTime - last > 1000 || startTime - first > 5000) [sum, first] = [0, startTime];
      sum += value;
      last = startTime;
      score = Math.max(score, sum);
    }
  }).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(score), 1000);
})"""


@pytest.mark.parametrize("size", [(1366, 768), pytest.param((390, 844), marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "query", ["", *(pytest.param(one, marks=pytest.mark.slow) for one in list(PAGES)[1:])]
)
def test_a_page_that_opens_hardly_moves(
    new_page: OpenPage, address: str, query: str, size: tuple[int, int]
) -> None:
    page = new_page(*size)
    page.goto(f"{address}/{query}")
    last = (
        PAGES[query].replace(".box.path", ".outline-item.path") if size[0] < 640 else PAGES[query]
    )
    expect(page.locator(last).last).to_be_attached()
    expect(page.locator("[data-test-script-state=notRunning]")).to_be_visible()
    assert page.evaluate(SCORE) <= 0.1
