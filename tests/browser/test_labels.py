"""How likely is it that ...? Labels by rules and by marks, in a real Chromium."""

import re

import pytest
from browser_steps import OpenPage
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def numbers_of(page: Page, place: int) -> list[float]:
    """Low, high and estimate of a label, in percent."""
    words = page.locator(".eab .label-chip").nth(place).inner_text()
    return [float(each) for each in re.findall(r"([\d.]+)%", words.replace(" to ", "% to "))]


def test_a_visitor_asks_how_likely_a_word_is_and_marks_a_branch(open_page: OpenPage) -> None:
    page = open_page("?example=ball.eab", reduced_motion="reduce")
    board = page.locator(".eab")
    expect(page.locator(".eab .box.path").first).to_be_visible()
    board.press("End")
    board.press("l")
    word = page.get_by_role("textbox", name="Word, or pattern")
    expect(word).to_be_focused()
    word.fill("ball")
    word.press("Enter")
    expect(page.locator(".eab .label-chip")).to_have_count(1)
    low, high, estimate = numbers_of(page, 0)
    assert 0 < low <= estimate <= high
    labelled = page.locator(".eab .frame.labelled")
    assert labelled.count() > 0
    word.press("Escape")
    expect(page.locator(".eab .label-form")).to_be_hidden()
    before = labelled.count()
    first = page.locator(".eab .box.path").first
    first.focus()
    first.press("Enter")
    board.press("Home")
    board.press("2")
    expect(page.locator(".eab .label-chip")).to_have_count(2)
    expect(page.locator(".eab .label-chip").nth(1)).to_contain_text("② good")
    board.press("u")
    expect(page.locator(".eab .label-chip")).to_have_count(1)
    board.press("End")
    expect(labelled).to_have_count(before)
    page.get_by_role("button", name="Remove the label ball").click()
    expect(page.locator(".eab .label-chip")).to_have_count(0)


def test_a_visitor_renames_a_label_and_lets_the_run_be_made_with_eight_seeds(
    open_page: OpenPage,
) -> None:
    page = open_page("?example=ball.eab", reduced_motion="reduce")
    expect(page.locator(".eab .box.path").first).to_be_visible()
    page.locator(".eab").press("l")
    word = page.get_by_role("textbox", name="Word, or pattern")
    chips, name = page.locator(".eab .label-chip"), page.locator(".eab .label-chip input").nth(0)
    for count, text in enumerate(("the dog", "ball"), start=1):
        word.fill(text)
        word.press("Enter")
        expect(chips).to_have_count(count)
    page.get_by_role("button", name="the dog: change the name").press("Enter")
    expect(name).to_be_focused()
    for refused, why in (("", "Give a name."), ("ball", "Another label has this name.")):
        name.fill(refused)
        name.press("Enter")
        assert name.evaluate("input => input.validationMessage") == why
    name.fill("dog")
    name.press("Enter")
    expect(chips.first).to_contain_text("① dog")
    expect(name).to_be_hidden()
    boxes = page.locator(".eab .box.path").count()
    _, high, _ = numbers_of(page, 1)
    page.locator(".eab .label-foot button", has_text="Repeat with 8 seeds").click()
    expect(page.locator(".eab .label-rest")).to_contain_text("mean of 8 runs", timeout=60_000)
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_visible()
    expect(chips.nth(1)).to_contain_text(" ± ")
    low, new_high, estimate, error = numbers_of(page, 1)
    assert low <= estimate <= new_high <= high
    assert 0 < error < 50
    expect(page.locator(".eab .box.path")).to_have_count(boxes)
    expect(page.locator(".eab .label-foot button", has_text="Repeat with")).to_be_hidden()


def test_a_wrong_pattern_is_explained_and_the_labels_stay(open_page: OpenPage) -> None:
    page = open_page("?example=ball.eab", reduced_motion="reduce")
    expect(page.locator(".eab .box.path").first).to_be_visible()
    page.get_by_role("button", name="How likely?").click()
    word = page.get_by_role("textbox", name="Word, or pattern")
    word.fill("ball")
    word.press("Enter")
    expect(page.locator(".eab .label-chip")).to_have_count(1)
    page.get_by_role("combobox", name="Kind of rule").select_option("pattern")
    word.fill("(ball")
    word.press("Enter")
    expect(page.get_by_text("is not a regular expression")).to_be_visible()
    expect(page.locator(".eab .label-chip")).to_have_count(1)


def test_a_visitor_lets_the_model_explore_and_asks_about_a_text(open_page: OpenPage) -> None:
    page = open_page("?example=ball.eab", reduced_motion="reduce")
    boxes = page.locator(".eab .box.path")
    expect(boxes.first).to_be_visible()
    page.locator(".eab").press("End")
    page.get_by_role("button", name="How likely?").click()
    word = page.get_by_role("textbox", name="Word, or pattern")
    word.fill("ball")
    word.press("Enter")
    expect(page.locator(".eab .label-chip")).to_have_count(1)
    low, high, _ = numbers_of(page, 0)
    count = boxes.count()
    page.locator(".eab .label-foot select").select_option("0.01")
    page.locator(".eab .label-foot button", has_text="Explore").click()
    stop = page.get_by_role("button", name="Stop", exact=True)
    expect(page.locator(".eab .label-rest")).to_contain_text("texts were explored", timeout=60_000)
    stop.click()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_visible()
    new_low, new_high, estimate = numbers_of(page, 0)
    assert new_high - new_low < high - low
    assert low <= new_low <= estimate <= new_high <= high
    expect(boxes).to_have_count(count)
    expect(page.get_by_text("Stopped after")).to_have_count(0)
    expect(page.locator("[data-test-script-state=notRunning]")).to_be_visible()
    expect(page.locator(".eab .label-foot button", has_text="Explore")).to_be_visible()
    page.get_by_role("combobox", name="Kind of rule").select_option("begins")
    word.fill("zebra")
    word.press("Enter")
    sentence = page.locator(".eab .given-texts button")
    expect(sentence).to_contain_text("“zebra” leaves the tree at step 1", timeout=60_000)
    expect(page.locator(".eab .edge.drawn")).not_to_have_count(0)
    sentence.click()
    expect(page.get_by_text("You asked about this text")).to_be_visible()
