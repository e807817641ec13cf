"""The first screen of Explore: what is visible in it, and that nothing moves during a run."""

import re
from typing import Any

import pytest
from browser_steps import OpenPage, box_of, until_attached, watch_shifts
from playwright.sync_api import Page, Route, expect

pytestmark = pytest.mark.browser
SIZES = [(1366, 768), (1920, 1080), (1024, 768)]


def opened(open_page: OpenPage, width: int = 1366, height: int = 768, **options: Any) -> Page:
    page = open_page(**options)
    page.set_viewport_size({"width": width, "height": height})
    expect(page.locator(".eab .box.path").first).to_be_visible()
    expect(page.get_by_role("tab", name="Texts")).to_be_visible()
    return page


def place(page: Page, selector: str) -> dict[str, float]:
    box = box_of(page.locator(selector).first)
    return dict(box)


def run_button(page: Page) -> Any:
    return page.get_by_role("button", name="Run", exact=True)


def expect_controls_uncovered(page: Page) -> None:
    for control in (
        page.get_by_role("button", name="Open"),
        run_button(page),
        page.get_by_role("textbox", name="Prompt"),
        page.get_by_test_id("stMainMenu"),
    ):
        control.click(trial=True)  # fails if something covers it


@pytest.mark.parametrize(
    ("width", "height"),
    [SIZES[0], *(pytest.param(*size, marks=pytest.mark.slow) for size in SIZES[1:])],
)
def test_the_header_is_one_line_and_pictures_and_scrubber_fit_the_window(
    open_page: OpenPage, width: int, height: int
) -> None:
    page = opened(open_page, width, height)
    for selector in (".eab-brand", ".st-key-prompt textarea", ".st-key-run_button button"):
        box = place(page, selector)
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 56
        assert box["x"] + box["width"] <= width
    expect_controls_uncovered(page)
    height_left = page.evaluate(
        """() => { const probe = document.body.appendChild(document.createElement("div"));
        probe.style.height = "var(--eab-board-height)"; const { height } = probe.getBoundingClientRect();
        probe.remove(); return height; }"""
    )
    assert place(page, ".eab")["y"] + height_left <= height
    for selector in ("svg.tree", "svg.entropy", "svg.memory", ".transport:not(.tools) input"):
        box = place(page, f".eab {selector}")
        assert box["height"] >= 15
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= height
        assert box["x"] + box["width"] <= width
    assert page.evaluate("document.querySelector('.stMain').scrollTop") == 0
    label = page.locator(".eab .box.path .label").first
    until_attached(lambda: label.click(force=True), page.locator(".eab .drawer:visible"))
    drawer = place(page, ".eab .drawer")
    assert drawer["y"] + drawer["height"] <= height


def on_phone(open_page: OpenPage, width: int, height: int) -> Page:
    page = open_page(reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": height})
    expect(page.locator(".eab .outline-item.path").first).to_be_visible()
    return page


def expect_texts_over_the_scrubber(page: Page, height: int) -> None:
    slider = place(page, ".eab .transport:not(.tools) input")
    assert place(page, ".eab .outline-item.path")["y"] < slider["y"] < height - slider["height"]


def test_on_a_phone_the_first_screen_has_the_texts_below_few_controls(open_page: OpenPage) -> None:
    page = on_phone(open_page, 360, 740)
    expect_controls_uncovered(page)
    bars = [place(page, name)["height"] for name in (".st-key-header", ".eab .tree-panel > header")]
    assert sum(bars) <= 740 / 4
    assert place(page, ".st-key-open_run button")["y"] >= 4
    expect_texts_over_the_scrubber(page, 740)
    token = page.locator(".eab .outline-item.path .token").first
    until_attached(token.click, page.locator(".eab .drawer:visible .inspector"))


@pytest.mark.parametrize("width", [776, pytest.param(880, marks=pytest.mark.slow)])
def test_on_a_tablet_run_stands_beside_the_menu(open_page: OpenPage, width: int) -> None:
    page = on_phone(open_page, width, 1024)
    run = place(page, ".st-key-run_button button")
    assert run["x"] + run["width"] <= place(page, "[data-testid=stMainMenu]")["x"]
    expect_controls_uncovered(page)


def test_on_a_phone_in_landscape_the_sidebar_leaves_the_width_to_the_texts(
    open_page: OpenPage,
) -> None:
    page = on_phone(open_page, 844, 390)
    expect_controls_uncovered(page)
    assert place(page, ".eab")["x"] < 100
    assert place(page, ".eab .outline")["width"] > 700
    expect_texts_over_the_scrubber(page, 390)
    page.locator(".stSidebar").hover(position={"x": 20, "y": 200})
    expect(page.locator("[data-testid=stSidebarNavLink] p").first).to_have_css("opacity", "1")
    shown = "document.elementFromPoint(150, 100).closest('.stSidebar') !== null"
    assert page.evaluate(shown)


@pytest.mark.slow
def test_nothing_moves_while_a_run_starts_continues_and_ends(open_page: OpenPage) -> None:
    page = opened(open_page, query="?example=ball.eab&max_new_tokens=100")
    page.wait_for_timeout(1000)  # everything is drawn
    top = place(page, ".eab")["y"]
    run_button(page).focus()
    watch_shifts(page)
    run_button(page).press("Enter")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    assert place(page, ".eab")["y"] == top
    expect(run_button(page)).to_be_visible()
    expect(page.get_by_role("tab", name="Texts")).to_be_visible()
    assert place(page, ".eab")["y"] == top
    assert page.evaluate("shifts") == []


@pytest.mark.slow
def test_a_long_error_does_not_move_the_board(open_page: OpenPage) -> None:
    page = opened(open_page)
    top = place(page, ".eab")["y"]
    page.get_by_role("textbox", name="Prompt").fill("word " * 2000)
    page.get_by_role("textbox", name="Prompt").press("Enter")
    expect(page.get_by_text("Run failed: ")).to_be_visible()
    assert place(page, ".eab")["y"] == top


@pytest.mark.slow
def test_the_prompt_field_grows_over_the_page_and_enter_starts_the_run(open_page: OpenPage) -> None:
    page = opened(open_page)
    top = place(page, ".eab")["y"]
    prompt = page.get_by_role("textbox", name="Prompt")
    assert place(page, ".st-key-prompt textarea")["height"] < 40
    prompt.click()
    assert place(page, ".st-key-prompt textarea")["height"] < 50
    prompt.press("Shift+Enter")
    prompt.press_sequentially("another line")
    assert place(page, ".st-key-prompt textarea")["height"] > 50
    assert "\n" in prompt.input_value()
    assert place(page, ".eab")["y"] == top
    prompt.fill("The cat sat on the")
    note = 'getComputedStyle(document.querySelector(".st-key-status"), "::before").content'
    assert "another prompt" in page.evaluate(note)
    prompt.press("Enter")
    expect(page).to_have_url(re.compile("run="))
    expect(page.locator(".eab .box.prompt")).to_have_attribute(
        "aria-label", re.compile(re.escape("The cat sat on the"))
    )
    assert not page.locator("html[data-eab-prompt-edited]").count()


@pytest.mark.slow
def test_enter_waits_for_the_button_of_a_page_that_is_being_drawn(open_page: OpenPage) -> None:
    page = opened(open_page)
    held: list[Route] = []
    page.route(re.compile(r"/static/js/Button\."), lambda route: held.append(route))
    page.reload()
    prompt = page.get_by_role("textbox", name="Prompt")
    prompt.fill("The cat sat on the")
    expect(run_button(page)).to_have_count(0)
    prompt.press("Enter")
    for route in held:
        route.continue_()
    expect(page).to_have_url(re.compile("run="))


@pytest.mark.slow
def test_a_double_click_on_run_does_not_stop_the_run(open_page: OpenPage) -> None:
    page = opened(open_page)
    run_button(page).dblclick()
    expect(page.get_by_text("Done after").first).to_be_visible()


@pytest.mark.slow
def test_the_theme_can_be_chosen_in_the_menu(open_page: OpenPage) -> None:
    page = opened(open_page, color_scheme="light")
    for name, dark in (("Dark", True), ("Light", False)):
        page.get_by_test_id("stMainMenu").click()
        page.get_by_role("menuitemradio", name=name).click()
        page.keyboard.press("Escape")
        board = "dark" if dark else ":not(.dark)"
        expect(page.locator(f".eab.{board}" if dark else f".eab{board}")).to_have_count(1)
