"""A finished run at a dragged threshold, and two runs in one tree, in a real Chromium."""

import re
from collections.abc import Callable

import pytest
from browser_steps import OpenPage, box_of
from playwright.sync_api import Page, expect
from waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """A run at its last step; its entropies reach far above its threshold."""
    found = open_page("?example=ball.eab")
    expect(found.locator(".eab .box.path").first).to_be_visible()
    found.locator(".eab").press("End")
    return found


def forks(page: Page) -> int:
    return page.locator(".eab .box.path.forked").count()


def until(page: Page, condition: Callable[[], bool]) -> None:
    wait_until(condition, pause=lambda: page.wait_for_timeout(50))


def test_the_tree_follows_the_threshold_line_while_it_is_dragged(page: Page) -> None:
    before = forks(page)
    line = page.locator(".eab svg.entropy .threshold")
    line.scroll_into_view_if_needed()
    box = box_of(line)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    cursor = page.locator(".eab").get_attribute("data-cursor")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - 50, steps=5)
    expect(page.get_by_text("Recomputed from the recording")).to_be_visible()
    until(page, lambda: forks(page) < before)
    page.mouse.move(x, y, steps=5)
    page.mouse.up()
    expect(page.get_by_text("Recomputed from the recording")).to_be_hidden()
    expect(page.locator(".eab .box.path.forked")).to_have_count(before)
    assert page.locator(".eab").get_attribute("data-cursor") == cursor
    assert page.evaluate("() => !location.search.includes('run=')"), "no run was made"
    assert page.locator(".eab").get_attribute("data-playing") == "false"


def test_a_lower_threshold_marks_the_tokens_where_only_a_run_can_tell(page: Page) -> None:
    expect(page.locator(".eab .unknown")).to_have_count(0)
    slider = page.get_by_role("slider", name="What if? Threshold (nats)")
    slider.focus()
    for _ in range(60):
        slider.press("ArrowLeft")
    lower = f"{float(slider.input_value()):.2f}"  # the page answers later, and also what it was asked on the way
    run_there = page.get_by_role("button", name=f"Run at {lower}")
    expect(run_there).to_be_visible()
    expect(page.locator(".eab svg.tree .unknown").first).to_be_visible()
    expect(page.locator(".eab svg.entropy .unknown").first).to_be_visible()
    run_there.click()
    page.wait_for_function("() => location.search.includes('run=')")
    slider = page.get_by_role("slider", name="Entropy threshold")
    expect(slider).to_have_value(f"{float(lower):g}")
    expect(page.locator(".eab .what-if button").first).to_be_hidden()


def test_two_runs_share_a_tree_in_two_colours_and_two_line_styles(open_page: OpenPage) -> None:
    page = open_page("/compare?a=ball.eab&b=original.eab")
    for side in ("both", "a", "b"):
        expect(page.locator(f".eab .box.side-{side}").first).to_be_visible()
        expect(page.locator(f".eab .trace.side-{side}").first).to_be_attached()
    looks = {
        side: page.locator(f".eab .edge.side-{side}").evaluate_all(
            "edges => [...new Set(edges.map(edge => {"
            " const { stroke, strokeDasharray } = getComputedStyle(edge);"
            " return `${stroke} ${strokeDasharray}`; }))]"
        )
        for side in ("both", "a", "b")
    }
    assert all(len(of_side) == 1 for of_side in looks.values()), looks
    assert len({look for of_side in looks.values() for look in of_side}) == 3
    assert [of_side[0].endswith("none") for of_side in looks.values()] == [True, True, False]
    expect(page.locator(".eab .memory-panel")).to_be_hidden()
    page.locator(".eab").press("Home")
    expect(page.locator(".eab")).to_have_attribute("data-cursor", "0")
    at_first = page.locator(".eab .trace").count()
    page.locator(".eab").press("End")
    expect(page.locator(".eab .trace").nth(at_first)).to_be_attached()
    expect(page.get_by_text("tokens through the model").first).to_be_visible()


@pytest.mark.parametrize(("a", "b"), [("coins", "independent"), ("ball", "original")])
def test_a_comparison_fits_the_first_screen_with_its_prompt_and_both_weights(
    open_page: OpenPage, a: str, b: str
) -> None:
    file = b if b == "independent" else f"{b}.eab"
    page = open_page(f"/compare?a={a}.eab&b={file}", reduced_motion="reduce")
    page.set_viewport_size({"width": 1366, "height": 768})
    expect(page.locator(".eab .weight:visible").first).to_have_text(re.compile("[AB] "))
    scrubber = page.locator(".eab .transport:not(.tools) input")
    until(page, lambda: box_of(scrubber)["y"] + box_of(scrubber)["height"] <= 768)
    assert box_of(page.locator(".eab .tree-panel"))["height"] > 400
    prompt = page.locator(".eab .box.prompt .label").text_content() or ""
    assert "".join(prompt.split()).endswith({"coins": "coins:", "ball": "andsaw"}[a])
    for side in ("a", "both"):
        leaf = page.locator(f".eab .box.path.finished.side-{side} .weight")
        words = [text for text in leaf.all_text_contents() if text]
        assert all(re.fullmatch(r"A \S+%(B \S+%)?", text) for text in words)
        assert all(("B" in text) == (side == "both") for text in words)


def test_on_a_phone_two_runs_are_an_outline_and_the_table_scrolls(open_page: OpenPage) -> None:
    page = open_page("/compare?a=ball.eab&b=original.eab", reduced_motion="reduce")
    page.set_viewport_size({"width": 360, "height": 740})
    for side in ("a", "b"):
        weight = page.locator(f".eab .outline-item.side-{side} .outline-weight").first
        expect(weight).to_have_text(re.compile(rf"^{side.upper()} \S+%$"))
    scrubber = page.locator(".eab .transport:not(.tools) input")
    until(page, lambda: box_of(scrubber)["y"] + box_of(scrubber)["height"] <= 740)
    table = page.get_by_test_id("stTable")
    inside = "one => one.firstElementChild.scrollWidth > one.firstElementChild.clientWidth"
    assert table.evaluate(inside)
    assert box_of(table)["width"] <= 360
