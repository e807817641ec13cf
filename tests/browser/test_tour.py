"""The tour of the board: shown on the first visit, usable by keyboard, repeated only on request."""

import pytest
from axe import grave_findings
from browser_steps import OpenPage, box_of, overlap, until_attached
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]
STOPS = 6


@pytest.mark.parametrize("width", [390, 1280])
def test_a_first_visit_gets_six_stops_that_cover_no_part_and_a_second_gets_none(
    open_page: OpenPage, width: int
) -> None:
    page = open_page(first_visit=True, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 768 if width < 1280 else 1000})
    tour = page.get_by_role("region", name="Tour")
    expect(tour).to_be_visible()
    expect(page.locator(".eab .tree-panel.toured")).to_have_count(1)
    assert width < 1280 or grave_findings(page) == []
    names = set()
    for stop in range(1, STOPS + 1):
        expect(tour).to_contain_text(f"{stop} of {STOPS}")
        expect(page.locator(".eab .toured")).to_have_count(1)
        place = box_of(tour)
        for part in (".tree-panel .picture", ".transport:not(.tools)"):
            assert overlap(place, box_of(page.locator(f".eab {part}"))) <= 0
        names.add(tour.get_by_role("heading").text_content())
        tour.get_by_role("button").last.press("Enter")
    assert len(names) == STOPS
    expect(tour).to_be_hidden()
    expect(page.locator(".eab .toured")).to_have_count(0)
    page.reload()
    text = ".outline-item.path" if width < 640 else ".box.path"
    expect(page.locator(f".eab {text}").first).to_be_visible()
    expect(tour).to_be_hidden()


@pytest.mark.parametrize("width", [390, 1024])
def test_what_the_tour_asks_for_opens_beside_its_card(open_page: OpenPage, width: int) -> None:
    page = open_page(first_visit=True, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 768 if width > 390 else 844})
    tour, drawer = page.get_by_role("region", name="Tour"), page.locator(".eab .drawer")
    tour.get_by_role("button", name="Next").press("Enter")
    word = page.locator(".eab :is(.box.path .label, .outline-item.path .token)").first
    until_attached(lambda: word.click(force=True), page.locator(".eab .drawer .inspector:visible"))
    expect(tour).to_contain_text(f"2 of {STOPS}")
    parts = (".drawer > header", ".drawer-body", ".tree-panel .picture")
    for part in parts if width > 390 else parts[:2]:
        assert overlap(box_of(tour), box_of(page.locator(f".eab {part}"))) <= 0, part
    drawer.get_by_role("button", name="Close").click()
    expect(page.locator(".eab .drawer .tour")).to_have_count(0)
    expect(tour).to_be_visible()


def test_a_visit_by_a_link_to_a_run_gets_no_tour(open_page: OpenPage) -> None:
    page = open_page("?example=bridge", first_visit=True, reduced_motion="reduce")
    expect(page.locator(".eab .box.path").first).to_be_visible()
    expect(page.get_by_role("region", name="Tour")).to_be_hidden()


def test_the_tour_can_be_skipped_and_restarted_from_help(open_page: OpenPage) -> None:
    page = open_page(first_visit=True, reduced_motion="reduce")
    tour = page.get_by_role("region", name="Tour")
    tour.get_by_role("button", name="end the tour").click()
    expect(tour).to_be_hidden()
    page.locator(".eab").focus()
    page.keyboard.press("?")
    page.get_by_role("button", name="Take the tour").click()
    expect(tour).to_contain_text(f"1 of {STOPS}")
    page.keyboard.press("Escape")
    expect(tour).to_be_hidden()
