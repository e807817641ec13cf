"""The page Tune in a real Chromium: the first screen, its widths, and a walk: a sweep, a click on a
tile, a reload, its tree on Explore.
"""

import re
from collections.abc import Callable

import contrast
import pytest
from axe_playwright_python.sync_playwright import Axe
from insisting import box_of
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SECONDS = 1000  # Playwright counts milliseconds
CHART = ".js-plotly-plot .main-svg"


def opened(
    open_page: Callable[..., Page], query: str = "/tune", width: int = 1366, height: int = 768
) -> Page:
    page = open_page(query, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": height})
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    return page


def settled(page: Page) -> None:
    page.wait_for_timeout(1 * SECONDS)
    expect(page.locator("[data-test-script-state=notRunning]")).to_be_visible()


def slide_to(page: Page, name: str, value: int) -> None:
    """Move a slider of whole numbers with the arrow keys."""
    slider = page.get_by_role("slider", name=name)
    now = int(slider.input_value())
    slider.focus()
    for _ in range(abs(value - now)):
        slider.press("ArrowRight" if value > now else "ArrowLeft")
    settled(page)


def choose_own_prompts(page: Page, prompts: str) -> None:
    page.get_by_role("combobox", name="Prompts").click()
    page.get_by_role("option", name="Your own, one per line").click()
    box = page.get_by_role("textbox", name="Prompts, one per line")
    box.fill(prompts)
    box.blur()
    settled(page)


def small_sweep(page: Page) -> None:
    slide_to(page, "Thresholds", 2)
    slide_to(page, "Seeds", 2)
    slide_to(page, "Max new tokens", 6)
    choose_own_prompts(page, "My favorite color is\nI have a pet")


def swept(page: Page) -> None:
    small_sweep(page)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("Measured here: embedded")).to_be_visible(timeout=120 * SECONDS)


def test_the_first_screen_has_the_question_the_controls_and_the_answer(
    open_page: Callable[..., Page],
) -> None:
    page = opened(open_page)
    expect(page.get_by_role("heading", name="Which settings give the best")).to_be_visible()
    for name in ("Pareto front: no other setting costs less", "Error of the answer distribution ("):
        box = box_of(page.get_by_text(name).first)
        assert box["y"] + box["height"] < 400
    expect(page.locator(CHART)).not_to_have_count(0)
    for chart in (0, 1):
        plot = box_of(page.locator(".js-plotly-plot .nsewdrag").nth(chart))
        assert plot["y"] + plot["height"] < 768


@pytest.mark.parametrize("width", [390, 1024])
def test_nothing_is_wider_than_the_screen(open_page: Callable[..., Page], width: int) -> None:
    page = opened(open_page, width=width)
    expect(page.locator(CHART).first).to_be_visible(timeout=60 * SECONDS)
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1024, 1366])
def test_what_is_chosen_can_be_read_whole(open_page: Callable[..., Page], width: int) -> None:
    page = opened(open_page, width=width)
    expect(page.get_by_text("This cell (")).to_be_visible(timeout=60 * SECONDS)
    settled(page)
    boxes = page.locator(".stMain .stSelectbox input")
    expect(boxes).to_have_count(7)
    for box in boxes.all():
        wide, room = box.evaluate("one => [one.scrollWidth, one.clientWidth]")
        assert wide <= room, box.input_value()


def test_a_wide_chart_scrolls_by_itself_on_a_phone(open_page: Callable[..., Page]) -> None:
    page = opened(open_page, width=390, height=844)
    chart = page.locator(".st-key-tune_parallel .js-plotly-plot")
    expect(chart).to_be_visible(timeout=60 * SECONDS)
    settled(page)
    wide, room = page.locator(".st-key-tune_parallel").evaluate(
        "one => [one.scrollWidth, one.clientWidth]"
    )
    assert wide > 800 > 390 > room


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("query", ["/tune", "/tune?view=threshold"])
def test_readable_by_all(open_page: Callable[..., Page], scheme: str, query: str) -> None:
    page = open_page(query, color_scheme=scheme, reduced_motion="reduce")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    settled(page)
    found = Axe().run(page).response["violations"]
    assert [rule["id"] for rule in found if rule["impact"] in ("serious", "critical")] == []
    assert contrast.faint(contrast.words(page)) == []


def test_a_sweep_a_click_on_a_tile_its_tree_and_a_reload(open_page: Callable[..., Page]) -> None:
    page = opened(open_page)
    swept(page)
    expect(page.get_by_text("Means over 2 prompts and 2 seeds.")).to_be_visible()
    setting = page.get_by_role("combobox", name="Setting (or click it in a chart)")
    expect(setting).to_have_value(re.compile("entropy threshold 0.3, .*max paths 2, "))
    tile = page.locator(".js-plotly-plot .point").first
    expect(tile).to_be_attached()
    tiles = page.locator(".js-plotly-plot").first.locator(".point")
    box = box_of(tiles.last)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(setting).to_have_value(re.compile("entropy threshold 1.2, .*max paths 32, "))
    page.reload()
    expect(page.get_by_text("Measured here: embedded")).to_be_visible(timeout=60 * SECONDS)
    expect(page.get_by_role("button", name="Cells (CSV)")).to_be_visible(timeout=60 * SECONDS)
    settled(page)
    page.get_by_role("button", name="Open its tree").click()
    expect(page.locator(".eab .box.path").first).to_be_visible(timeout=60 * SECONDS)
    expect(page.get_by_role("textbox", name="Prompt")).to_have_value("My favorite color is")
