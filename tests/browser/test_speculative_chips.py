"""The page Speculative decoding in a real Chromium: recorded chips, a new sweep, reload, hostile
tokens.
"""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from app.widgets.chips import FOLDER

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SECONDS = 1000  # Playwright counts milliseconds


def test_from_the_recorded_chips_to_a_run_that_a_reload_finds_again(
    open_page: Callable[..., Page],
) -> None:
    page = open_page("/speculative", color_scheme="dark")
    expect(page.get_by_text("The same tokens with 6 draft lengths.")).to_be_visible(
        timeout=60 * SECONDS
    )
    expect(page.locator(".chips .text .accepted").first).to_be_visible(timeout=60 * SECONDS)
    few = page.locator(".chips .text .accepted").count()
    page.get_by_role("radiogroup", name="Draft length").get_by_text("8 draft tokens").click()
    expect(page.locator(".chips .text .accepted")).not_to_have_count(few, timeout=30 * SECONDS)
    expect(page.locator(".js-plotly-plot")).to_have_count(3, timeout=60 * SECONDS)

    page.get_by_role("textbox", name="Prompt").fill("Anna has a red ball. Ben has")
    slider = page.get_by_role("slider", name="Max new tokens")
    slider.focus()
    slider.press("Home")
    for _ in range(5):
        slider.press("ArrowRight")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("Measured here: embedded")).to_be_visible(timeout=120 * SECONDS)
    page.reload()
    expect(page.get_by_text("“Anna has a red ball. Ben has”")).to_be_visible(timeout=60 * SECONDS)


def test_tokens_are_text_and_each_kind_has_a_sign_besides_its_colour(
    open_page: Callable[..., Page],
) -> None:
    page = open_page("/speculative")
    chips = [
        {"kind": "own", "text": "<img src=x onerror=alert(1)>"},
        {"kind": "rejected", "text": " $x$ **bold**"},
        {"kind": "accepted", "text": "مرحبا"},
    ]
    page.evaluate(
        """async ([code, chips]) => {
          const module = await import(URL.createObjectURL(new Blob([code], { type: "text/javascript"
          }))); const host = document.body.appendChild(document.createElement("div"));
          host.id = "alone";
          module.default({ data: { chips }, parentElement: host });
          module.default({ data: { chips }, parentElement: host });  // sent twice, drawn once
        }""",
        [(FOLDER / "chips.js").read_text(encoding="utf-8"), chips],
    )
    shown = page.locator("#alone .text .chip")
    expect(shown).to_have_count(3)
    expect(shown.nth(0)).to_have_text("<img␣src=x␣onerror=alert(1)>")
    expect(shown.nth(1)).to_have_text("×␣$x$␣**bold** (rejected draft token, replaced by the next)")
    expect(shown.nth(2)).to_have_text("✓مرحبا (accepted draft token)")
    assert page.locator("#alone img").count() == 0
