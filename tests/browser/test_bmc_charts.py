"""The page BMC in a real Chromium: recorded charts, r by keyboard, the cost model, a measurement,
its download, dark mode.
"""

import csv
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from insisting import box_of
from playwright.sync_api import Page, expect

from eab.labs.bmc.results import EXPERIMENTS

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SECONDS = 1000  # Playwright counts milliseconds


def test_from_the_recorded_charts_to_a_measurement_and_its_download(
    open_page: Callable[..., Page], tmp_path: Path
) -> None:
    page = open_page(color_scheme="dark")
    page.get_by_role("link", name="BMC").click()
    expect(page.get_by_text("Recorded:")).to_be_visible(timeout=60 * SECONDS)
    expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=60 * SECONDS)
    expect(page.get_by_text("At r = 16 the tensors grow")).to_be_visible()
    slider = page.get_by_role("slider", name="r: steps of spare room per allocation")
    slider.focus()
    slider.press("ArrowRight")
    expect(page.get_by_text("At r = 32 the tensors grow")).to_be_visible(timeout=30 * SECONDS)

    page.get_by_role("tab", name="Memory", exact=True).click()
    expect(page.get_by_text("With 128 rows in use")).to_be_visible(timeout=30 * SECONDS)
    button = page.get_by_role("button", name="Measure", exact=True)
    button.click()
    expect(page.get_by_text("Measured here:")).to_be_visible(timeout=120 * SECONDS)
    sentence = page.get_by_text("With 128 rows in use")
    below = box_of(sentence), box_of(button)
    assert 0 < below[0]["y"] - below[1]["y"] < 200, "the result stands below the button"
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled()
    with page.expect_download() as download:
        page.get_by_role("button", name="Points (CSV)").last.click()
    file = tmp_path / "points.csv"
    download.value.save_as(file)
    with file.open(newline="") as text:
        rows = list(csv.DictReader(text))
    assert {"r", "rows", "bytes_held", "peak_bytes"} <= set(rows[0])
    assert all(
        int(row["peak_bytes"]) >= int(row["bytes_held"]) >= int(row["bytes_used"]) for row in rows
    )


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_numbers_of_an_axis_do_not_overlap_and_no_line_leaves_it(
    open_page: Callable[..., Page], name: str
) -> None:
    page = open_page(f"/bmc?experiment={name}")
    chart = page.locator("[role=tabpanel] .js-plotly-plot").first
    expect(chart.locator(".ytick text").first).to_be_visible(timeout=60 * SECONDS)
    boxes = [box_of(label) for label in chart.locator(".ytick text").all()]
    places = sorted(box["y"] for box in boxes)
    assert len(places) >= 3
    assert min(upper - lower for lower, upper in pairwise(places)) > 10
    outside = chart.locator(".scatterlayer .point").evaluate_all(_OUTSIDE)
    assert outside == 0


def test_both_formulas_of_the_cost_model_are_rendered(open_page: Callable[..., Page]) -> None:
    page = open_page("/bmc")
    page.get_by_text("The cost model", exact=True).click()
    expect(page.locator(".katex-display")).to_have_count(2, timeout=60 * SECONDS)
    expect(page.locator(".katex-error")).to_have_count(0)
    expect(page.locator(".katex-display .katex-html").first).to_contain_text("r∗")


_OUTSIDE = """
points => points.filter(point => {
  const box = point.getBoundingClientRect();
  const plot = point.closest('.js-plotly-plot').querySelector('.nsewdrag').getBoundingClientRect();
  const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
  return x < plot.left - 1 || x > plot.right + 1 || y < plot.top - 1 || y > plot.bottom + 1;
}).length
"""
