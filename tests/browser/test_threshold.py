"""The threshold before anything was run: a greedy probe of the prompt, and its slider."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = pytest.mark.browser
SLIDER = ".st-key-set_threshold_nats input"


def typed(open_page: Callable[..., Page], prompt: str) -> Page:
    page = open_page()
    prompt_box = page.get_by_role("textbox", name="Prompt")
    prompt_box.fill(prompt)
    prompt_box.blur()
    return page


def sentence(page: Page) -> Locator:
    return page.locator(".eab-entropies p")


def tokens(page: Page) -> tuple[int, int]:
    """How many of how many tokens reach the threshold, as the sentence says."""
    found = re.search(r"(\d+) of (\d+) tokens", sentence(page).inner_text())
    assert found is not None
    return int(found[1]), int(found[2])


def test_a_typed_prompt_is_probed_and_the_slider_shows_what_the_preset_comes_to(
    open_page: Callable[..., Page],
) -> None:
    page = typed(open_page, "My best friend is")
    expect(sentence(page)).to_contain_text("of a greedy run")
    above, of = tokens(page)
    assert 0 < above < of / 4, "the highest 10 %"
    value = page.locator(SLIDER).input_value()
    page.get_by_role("button", name="Run", exact=True).click()
    expect(sentence(page)).to_contain_text(re.compile(r"about \d+ text"))
    assert page.locator(SLIDER).input_value() == value, "what the controls show is what runs"


@pytest.mark.slow
def test_the_sentence_and_the_bars_follow_the_slider_while_it_is_dragged(
    open_page: Callable[..., Page],
) -> None:
    page = typed(open_page, "My best friend is")
    expect(sentence(page)).to_contain_text("of a greedy run")
    before, before_bars = tokens(page), page.locator(".eab-entropies i.fork").count()
    box: Any = page.locator(f"{SLIDER} >> xpath=../..").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y, steps=6)
    dragged = tokens(page)
    assert dragged[0] < before[0]
    assert page.locator(".eab-entropies i.fork").count() < before_bars
    page.mouse.up()
    expect(page.get_by_text("default by preset")).to_be_visible()
    assert tokens(page) == dragged
