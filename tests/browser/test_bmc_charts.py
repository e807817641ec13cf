"""The page BMC in a real Chromium: recorded charts, r by keyboard, a measurement made here, its
download, dark mode.
"""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from eab.bmc.results import EXPERIMENTS

pytestmark = pytest.mark.browser
SECONDS = 1000  # Playwright counts milliseconds


def test_from_the_recorded_charts_to_a_measurement_and_its_download(
    open_page: Callable[..., Page], tmp_path: Path
) -> None:
    page = open_page(color_scheme="dark")
    page.get_by_role("link", name="BMC").click()
    expect(page.get_by_text("Recorded:")).to_have_count(len(EXPERIMENTS), timeout=60 * SECONDS)
    expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=60 * SECONDS)
    expect(page.get_by_text("At r = 16 the tensors grow")).to_be_visible()
    slider = page.get_by_role("slider", name="r: rows for so many steps at a time")
    slider.focus()
    slider.press("ArrowRight")
    expect(page.get_by_text("At r = 32 the tensors grow")).to_be_visible(timeout=30 * SECONDS)

    page.get_by_role("button", name="Memory", exact=True).click()
    expect(page.get_by_text("Measured here:")).to_be_visible(timeout=120 * SECONDS)
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled()
    with page.expect_download() as download:
        page.get_by_role("button", name="Points (CSV)").last.click()
    file = tmp_path / "points.csv"
    download.value.save_as(file)
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert {"r", "rows", "bytes_held", "peak_bytes"} <= set(rows[0])
    assert all(
        int(row["peak_bytes"]) >= int(row["bytes_held"]) >= int(row["bytes_used"]) for row in rows
    )
