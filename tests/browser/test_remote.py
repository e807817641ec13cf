"""A run of the Explore page on a real llama.cpp server that the operator has configured."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from write_gguf import write_embedded

from eab.remote import connection
from scripts.llama_server import llama_server
from scripts.servers import serving_explorer

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def explorer(tmp_path: Path) -> Iterator[str]:
    """The address of an explorer whose operator has configured a llama.cpp server."""
    write_embedded(tmp_path / "embedded.gguf")
    with llama_server(tmp_path / "embedded.gguf", "the-key") as (url, _):
        environment = os.environ | {connection.ADDRESS: url, connection.KEY: "the-key"}
        with serving_explorer(env=environment) as (address, _):
            yield address


MEASURES_HERE = ("Memory", "BMC", "Batching", "Quantization")


def choose_server(page: Page) -> None:
    page.get_by_role("radio", name="Server").or_(
        page.get_by_role("button", name="Server", exact=True)
    ).first.click()
    name = page.get_by_role("textbox", name="Model on the server")
    name.fill("embedded")
    name.press("Enter")


def test_a_run_on_a_server_is_shown_and_pages_that_measure_here_refuse_its_model(
    browser: Browser, explorer: str
) -> None:
    context = browser.new_context(viewport={"width": 1366, "height": 768}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.goto(explorer)
    choose_server(page)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("on the server (computed, row by row)").first).to_be_attached()
    assert "the-key" not in page.content()
    for name in MEASURES_HERE:
        page.get_by_role("link", name=name, exact=True).first.click()
        words = page.get_by_text("this page measures caches and weights on this machine")
        expect(words.first).to_be_visible()
        start = page.get_by_role("button", name=re.compile("^(Run|Measure)$"))
        expect(start.locator("visible=true").first).to_be_disabled()
    context.close()
