"""The contrast of every word and of the marks of every chart, in both themes, as the browser draws
them.
"""

from collections.abc import Callable

import contrast
import pytest
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])
TICKS = ".js-plotly-plot :is(.xtick, .ytick) text"


def expect_no_faint_words_or_marks(page: Page) -> None:
    found = contrast.words(page)
    assert len(found) > 30
    assert contrast.faint(found) == []
    assert contrast.faint(contrast.marks(page)) == []


@SCHEMES
@pytest.mark.parametrize("name", ["memory", "bmc", "speculative", "batching", "quantization"])
def test_words_and_charts_of_a_page_stand_out(
    open_page: Callable[..., Page], name: str, scheme: str
) -> None:
    page = open_page(f"/{name}", color_scheme=scheme, reduced_motion="reduce")
    expect(page.locator("[data-testid=stDownloadButton]").last).to_be_visible(timeout=60_000)
    expect(page.locator(TICKS).last).to_be_attached(timeout=60_000)
    assert contrast.marks(page)
    expect_no_faint_words_or_marks(page)


@SCHEMES
def test_words_of_compare_stand_out(open_page: Callable[..., Page], scheme: str) -> None:
    page = open_page("/compare", color_scheme=scheme, reduced_motion="reduce")
    expect(page.locator("[data-testid=stDownloadButton]").last).to_be_visible(timeout=60_000)
    expect_no_faint_words_or_marks(page)


@SCHEMES
def test_words_and_charts_below_the_board_stand_out(
    open_page: Callable[..., Page], scheme: str
) -> None:
    page = open_page(color_scheme=scheme, reduced_motion="reduce")
    page.get_by_role("tab", name="Answers").click(timeout=60_000)
    expect(page.locator(TICKS).last).to_be_attached(timeout=60_000)
    expect_no_faint_words_or_marks(page)
    page.get_by_role("tab", name="Probability").click()
    expect(page.locator(".js-plotly-plot .cbaxis text").last).to_be_attached(timeout=60_000)
    expect_no_faint_words_or_marks(page)


@SCHEMES
@pytest.mark.parametrize("example", ["", "?example=original.eab"])
def test_words_and_ticks_of_the_board_stand_out(
    open_page: Callable[..., Page], scheme: str, example: str
) -> None:
    page = open_page(f"/{example}", color_scheme=scheme, reduced_motion="reduce")
    expect(page.locator(".eab .tick").first).to_be_visible(timeout=60_000)
    page.locator(".eab").press("End")
    page.locator(".eab").press("?")
    expect(page.locator(".eab .help")).to_be_visible()
    ticks = [mark for mark in contrast.marks(page) if "tick" in mark.name]
    assert len({mark.name for mark in ticks}) >= 2
    expect_no_faint_words_or_marks(page)


def test_a_faint_tick_is_found(open_page: Callable[..., Page]) -> None:
    page = open_page("/memory", color_scheme="light", reduced_motion="reduce")
    expect(page.locator(TICKS).last).to_be_attached(timeout=60_000)
    page.add_style_tag(content=f"{TICKS} {{ fill: #808495 !important; }}")  # survives a redraw
    tick, *_ = contrast.faint(contrast.words(page))
    assert 3.6 < tick.ratio < 3.8


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast.contrast([0, 0, 0], [255, 255, 255]) == 21
    assert contrast.contrast([255, 255, 255], [255, 255, 255]) == 1
    assert contrast.contrast([118, 118, 118], [255, 255, 255]) == pytest.approx(4.54, abs=0.01)
