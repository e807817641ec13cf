"""A chat on Explore in the browser: a reply starts with an empty prompt, Advanced stays open."""

from pathlib import Path
from urllib.parse import quote

import pytest
from browser_steps import OpenPage
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


def run(page: Page, prompt: str) -> None:
    page.get_by_role("textbox", name="Prompt").fill(prompt)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("Done after").first).to_be_visible()


def test_a_reply_empties_the_prompt_and_continues_from_the_answer(
    open_page: OpenPage, smollm2_file: Path
) -> None:
    page = open_page(f"/?model={quote(str(smollm2_file))}&max_new_tokens=6&max_paths=2")
    run(page, "Who wrote Hamlet?")
    page.get_by_role("button", name="Reply").click()
    expect(page.get_by_role("textbox", name="Prompt")).to_have_value("")
    expect(page.get_by_text("Your next prompt replies to")).to_be_visible()


def test_advanced_stays_open_during_a_run_and_on_other_pages(open_page: OpenPage) -> None:
    page = open_page("/?model=embedded&max_new_tokens=6")
    page.get_by_text("Advanced", exact=True).click()
    inside = page.get_by_role("combobox", name="Weights")
    expect(inside).to_be_visible()
    run(page, "Once upon a time")
    expect(inside).to_be_visible()
    page.get_by_role("link", name="Memory").first.click()
    expect(page.get_by_role("heading", name="What does a KV cache save?")).to_be_visible()
    page.get_by_role("link", name="Explore").first.click()
    expect(inside).to_be_visible()
