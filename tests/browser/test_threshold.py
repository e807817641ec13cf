"""The threshold slider before any run, and the greedy probe of the prompt that it rests on."""

import re

import pytest
from browser_steps import OpenPage, box_of
from playwright.sync_api import Locator, Page, expect

pytestmark = pytest.mark.browser
SLIDER = ".st-key-set_threshold_nats input"


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """The Explore page with a typed prompt, once that has been probed."""
    page = open_page()
    prompt = page.get_by_role("textbox", name="Prompt")
    prompt.fill("My best friend is")
    prompt.blur()
    expect(sentence(page)).to_contain_text("tokens of a greedy run")
    return page


def sentence(page: Page) -> Locator:
    return page.locator(".eab-entropies p")


def tokens(page: Page) -> tuple[int, int]:
    """The number of tokens at or above the threshold, and of all tokens, from the sentence."""
    found = re.search(r"(\d+) of (\d+) tokens", sentence(page).inner_text())
    return int(found[1]), int(found[2])


@pytest.mark.slow
def test_a_typed_prompt_is_probed_and_the_slider_shows_the_threshold_of_the_preset(
    page: Page,
) -> None:
    above, of = tokens(page)
    assert 0 < above < of / 4, "the highest 10%"
    value = page.locator(SLIDER).input_value()
    page.get_by_role("button", name="Run", exact=True).click()
    expect(sentence(page)).to_contain_text(re.compile(r"tokens\.$"))  # of the run
    assert page.locator(SLIDER).input_value() == value, "what the controls show is what runs"


@pytest.mark.slow
def test_the_sentence_and_the_bars_follow_the_slider_while_it_is_dragged(page: Page) -> None:
    bars = page.locator(".eab-entropies i.fork")
    before, before_bars = tokens(page), bars.count()
    place = box_of(page.locator(f"{SLIDER} >> xpath=../.."))
    x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y, steps=6)
    dragged = tokens(page)
    assert dragged[0] < before[0]
    assert bars.count() < before_bars
    page.mouse.up()
    expect(page.get_by_text("● by hand")).to_be_visible()
    assert tokens(page) == dragged
