"""The page Memory in a real Chromium: recorded comparison, run, reload, download, dark mode, print."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from eab.labs.variants.results import CACHES

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SECONDS = 1000  # Playwright counts milliseconds


def wait_for_charts(page: Page) -> None:
    expect(
        page.locator(".js-plotly-plot .main-svg .bars, .js-plotly-plot .main-svg .scatterlayer")
    ).not_to_have_count(0, timeout=60 * SECONDS)
    expect(page.locator(".js-plotly-plot")).to_have_count(5, timeout=60 * SECONDS)


def start(page: Page, prompt: str, key: str, presses: int = 0) -> None:
    """Press Run.

    Args:
        page: The page Memory.
        prompt: What to type.
        key: Home or End: the end of the slider "Max new tokens" to start from.
        presses: How many steps to go up from there.
    """
    page.get_by_role("textbox", name="Prompt").fill(prompt)
    slider = page.get_by_role("slider", name="Max new tokens")
    slider.focus()
    slider.press(key)
    for _ in range(presses):
        slider.press("ArrowRight")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_function(
        "() => location.search.includes('cache_variants=')", timeout=120 * SECONDS
    )


def test_a_comparison_from_the_first_page_to_the_download(
    open_page: Callable[..., Page], tmp_path: Path
) -> None:
    page = open_page()
    page.get_by_role("link", name="Memory").click()
    wait_for_charts(page)
    expect(page.get_by_text("Recorded: embedded")).to_be_visible()
    start(page, "The compared cat", "Home", presses=7)
    expect(page.get_by_text("Measured here: embedded")).to_be_visible(timeout=120 * SECONDS)
    expect(page.get_by_text("The same tokens with 4 caches. The tree copies")).to_be_visible()
    wait_for_charts(page)
    page.reload()
    expect(page.get_by_text("“The compared cat”")).to_be_visible(timeout=60 * SECONDS)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Steps of all caches (CSV)").click()
    waiting.value.save_as(tmp_path / "steps.csv")
    with (tmp_path / "steps.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["variant"] for row in rows if row["step"] == "7"] == list(CACHES)
    page.get_by_role("link", name="Explore").click()
    expect(page.locator(".eab .box.path").first).to_be_visible(timeout=60 * SECONDS)


def test_charts_are_readable_in_both_themes_and_white_for_print(
    open_page: Callable[..., Page],
) -> None:
    brightness = {}
    for scheme in ("light", "dark"):
        page = open_page("/memory", color_scheme=scheme)
        wait_for_charts(page)
        page.wait_for_function(_COLOURED)
        brightness[scheme] = page.locator(".js-plotly-plot .ytitle").first.evaluate(_BRIGHTNESS)
    assert brightness["light"] < 150 < brightness["dark"], "axis titles stand out from the page"
    page.get_by_text("White background, for print").click()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.js-plotly-plot .main-svg')]"
        ".filter(svg => svg.style.background === 'white' || svg.style.background === 'rgb(255, 255, 255)').length === 5"
    )
    assert page.locator(".js-plotly-plot .ytitle").first.evaluate(_BRIGHTNESS) < 100
    page.locator(".js-plotly-plot").first.hover(force=True)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download plot").first.click()
    assert waiting.value.suggested_filename.endswith(".svg")
    assert waiting.value.path().read_text(encoding="utf-8").startswith("<svg")


_COLOURED = (
    r"""() => /\d/.test(getComputedStyle(document.querySelector('.js-plotly-plot .ytitle')).fill)"""
)
_BRIGHTNESS = """
title => getComputedStyle(title).fill.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 3
"""
