"""The page Batching in a real Chromium: what the first screen shows, a measurement with edited
requests, and Now while somebody else runs.
"""

import csv
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import contrast
import pytest
from axe_playwright_python.sync_playwright import Axe
from insisting import box_of, until_attached
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SECONDS = 1000  # Playwright counts milliseconds
CHART = ".js-plotly-plot .main-svg"


def opened(
    open_page: Callable[..., Page], query: str = "/batching", width: int = 1366, height: int = 768
) -> Page:
    page = open_page(query, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": height})
    expect(page.locator(CHART).first).to_be_visible(timeout=60 * SECONDS)
    return page


def choose(page: Page, name: str, option: str) -> None:
    page.get_by_role("combobox", name=name).click()
    page.get_by_role("option", name=option, exact=True).click()


def bottom(page: Page, text: str) -> float:
    box = box_of(page.get_by_text(text).first)
    return box["y"] + box["height"]


def test_the_first_screen_has_the_takeaway_and_both_ways_to_batch(
    open_page: Callable[..., Page],
) -> None:
    page = opened(open_page)
    expect(page.get_by_text("10 requests in 4 slots: continuous batching took")).to_be_visible()
    expect(page.locator(".annotation-text", has_text="Static batches")).to_be_visible()
    one_by_one = box_of(page.locator(".annotation-text", has_text="One by one"))
    assert one_by_one["y"] < 768, "the slots of both other ways end above it"


@pytest.mark.parametrize("width", [390, 1024])
def test_nothing_is_wider_than_the_screen(open_page: Callable[..., Page], width: int) -> None:
    page = opened(open_page, width=width)
    page.wait_for_timeout(1 * SECONDS)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    chart = box_of(page.locator(CHART).first)
    assert chart["x"] >= 0
    assert chart["x"] + chart["width"] <= width


def test_a_measurement_here_and_its_download(
    open_page: Callable[..., Page], tmp_path: Path
) -> None:
    page = open_page(reduced_motion="reduce")
    page.get_by_role("link", name="Batching").click()
    expect(page.locator(CHART).first).to_be_visible(timeout=60 * SECONDS)
    choose(page, "Requests", "All equal")
    choose(page, "Slots", "8")
    page.get_by_text("Edit requests").click()
    table = page.get_by_test_id("stDataFrame")
    page.wait_for_timeout(2 * SECONDS)  # it opens, and that of the set before goes
    expect(page.locator("[data-test-script-state=notRunning]")).to_be_visible()
    expect(table).to_have_count(1)
    grid = box_of(table)
    table.click(position={"x": grid["width"] - 60, "y": 52})  # the first row's number
    page.keyboard.type("4")
    page.wait_for_timeout(1 * SECONDS)  # the cell opens
    page.keyboard.press("Enter")
    page.wait_for_timeout(1 * SECONDS)  # an edit is sent after a moment
    page.get_by_role("button", name="Measure", exact=True).click()
    expect(page.get_by_text("8 requests in 8 slots: continuous batching took 32")).to_be_visible(
        timeout=180 * SECONDS
    )
    expect(page.get_by_text("Measured here: embedded")).to_be_visible()
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled()
    expect(page.get_by_text("no time is lost")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Requests (CSV)").click()
    file = tmp_path / "requests.csv"
    download.value.save_as(file)
    with file.open(newline="") as text:
        rows = list(csv.DictReader(text))
    assert len(rows) == 3 * 8
    assert [row["new_tokens"] for row in rows] == ["4", *["32"] * 7] * 3
    assert all(float(row["ended_s"]) >= float(row["first_token_s"]) for row in rows)


def test_one_cursor_goes_through_all_parts_of_the_picture(open_page: Callable[..., Page]) -> None:
    page = opened(open_page)
    plot = page.locator(".js-plotly-plot .nsewdrag").first
    line, places = page.locator(".js-plotly-plot .spikeline").first, cycle((300, 320))
    until_attached(lambda: plot.hover(position={"x": next(places), "y": 30}, force=True), line)
    drawn = page.locator(".js-plotly-plot .spikeline").evaluate_all(
        "lines => Math.max(...lines.map((line) => line.getBoundingClientRect().height))"
    )
    assert drawn > 400


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_now_is_readable_by_all(open_page: Callable[..., Page], scheme: str) -> None:
    page = open_page("/batching?view=now", color_scheme=scheme, reduced_motion="reduce")
    expect(page.locator(CHART).first).to_be_visible(timeout=60 * SECONDS)
    expect(page.get_by_text("seconds from the last pass")).to_be_visible()
    found = Axe().run(page).response["violations"]
    assert [rule["id"] for rule in found if rule["impact"] in ("serious", "critical")] == []
    assert contrast.faint(contrast.words(page)) == []


def test_now_shows_what_another_tab_runs_and_nothing_moves(open_page: Callable[..., Page]) -> None:
    now = opened(open_page, "/batching?view=now")
    expect(now.get_by_text("Nothing is being served.")).to_be_visible()
    place = box_of(now.locator(CHART).first)
    other = open_page(reduced_motion="reduce")
    expect(other.locator(".eab .box.path").first).to_be_visible(timeout=60 * SECONDS)
    other.get_by_role("textbox", name="Prompt").fill("Once upon a time, there was a secret")
    slider = other.get_by_role("slider", name="Max new tokens")
    slider.focus()
    slider.press("End")
    other.get_by_role("button", name="Run", exact=True).click()
    now.bring_to_front()
    expect(now.get_by_text("in the batch, 0 wait;")).to_be_visible(timeout=60 * SECONDS)
    expect(now.locator(".annotation-text", has_text="run ").first).to_be_visible()
    assert "secret" not in now.content()
    assert box_of(now.locator(CHART).first) == place
    other.bring_to_front()
    stop = other.get_by_role("button", name="Stop", exact=True)
    if stop.is_visible():
        stop.click()
    expect(now.get_by_text("Nothing is being served.")).to_be_visible(timeout=120 * SECONDS)
