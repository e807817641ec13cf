"""The slider of the threshold in a real Chromium: its sentence and its bars follow the pointer."""

import re

import pytest
from insisting import OpenPage, box_of
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SLIDER = ".st-key-set_threshold_nats input"


def test_the_sentence_and_the_bars_follow_the_slider_while_it_is_dragged(
    open_page: OpenPage,
) -> None:
    page = open_page()
    prompt = page.get_by_role("textbox", name="Prompt")
    prompt.fill("My best friend is")
    prompt.blur()
    sentence, bars = page.locator(".eab-entropies p"), page.locator(".eab-entropies i.fork")

    def forking() -> tuple[int, int]:
        """How many tokens reach the threshold, as the sentence says, and how many bars do."""
        found = re.search(r"(\d+) of \d+ tokens", sentence.inner_text())
        assert found is not None
        return int(found[1]), bars.count()

    expect(sentence).to_contain_text("of a greedy run")
    before = forking()
    place = box_of(page.locator(f"{SLIDER} >> xpath=../.."))
    x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y, steps=6)
    dragged = forking()
    assert dragged[0] < before[0]
    assert dragged[1] < before[1]
    page.mouse.up()
    expect(page.get_by_text("default by preset")).to_be_visible()
    assert forking() == dragged
