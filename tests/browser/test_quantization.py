"""The page Quantization in a real browser: other bits, and a run in fewer bits."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_other_bits_change_the_sentence_and_a_run_in_fewer_bits_is_drawn(
    open_page: Callable[..., Page],
) -> None:
    page = open_page("/quantization", reduced_motion="reduce")
    expect(page.get_by_text("16 levels with a scale per 32 weights")).to_be_visible(timeout=60_000)
    page.get_by_role("slider", name="Bits").press("ArrowLeft")
    expect(page.get_by_text("8 levels with a scale per 32 weights")).to_be_visible(timeout=30_000)
    expect(page.locator(".eab .box.path").first).to_be_attached(timeout=60_000)
    expect(page.get_by_text("With int4, the trees differ")).to_be_visible(timeout=30_000)
    page.get_by_role("button", name="Run in this format").click()
    expect(page).to_have_url(re.compile("quantized="), timeout=30_000)
    expect(page.get_by_role("button", name="Run in this format")).to_be_visible(timeout=60_000)
    # Where int4 changes a token depends on the processor's kernel; that it was run here does not.
    expect(page.get_by_text(re.compile("Done after .* steps"))).to_be_visible()
    expect(page.get_by_text(re.compile("With int4, the (trees differ|run has)"))).to_be_visible()
    expect(page.locator(".eab .box.path").first).to_be_attached()


@pytest.mark.parametrize("width", [390, 1024])
def test_the_page_is_no_wider_than_the_screen(open_page: Callable[..., Page], width: int) -> None:
    page = open_page("/quantization")
    page.set_viewport_size({"width": width, "height": 800})
    expect(page.get_by_role("button", name="Measure")).to_be_visible(timeout=60_000)
    expect(page.locator("[data-testid=stDownloadButton]").last).to_be_attached(timeout=60_000)
    expect(page.locator(".js-plotly-plot .main-svg").last).to_be_attached(timeout=60_000)
    page.wait_for_timeout(500)
    assert page.evaluate("document.querySelector('.stMain').scrollWidth") <= width
