"""A server for strangers: `eab app --public`, as a browser and as curl see it."""

import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from explorer_server import free_port, serve_command, serving
from places import ROOT
from playwright.sync_api import Browser, Page, expect

KEY = "a-key-of-the-tests"


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a public server that allows 20 paths."""
    rules: Path = tmp_path_factory.mktemp("rules") / "eab.toml"
    rules.write_text(f'max_paths = 20\nkey = "{KEY}"\n', encoding="utf-8")
    environment = os.environ | {"EAB_PUBLIC": "1", "EAB_RULES": str(rules)}
    port = free_port()
    with serving(serve_command(port), port, cwd=ROOT, env=environment) as (address, _):
        yield address


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1366, "height": 768})
    yield context.new_page()
    context.close()


def answer(address: str, key: str = "") -> tuple[int, str, dict[str, str]]:
    """Status, text and headers of a GET request."""
    asked = urllib.request.Request(address, headers={"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(asked, timeout=30) as response:
            return response.status, response.read().decode(), dict(response.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), dict(error.headers)


@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics", "/no/such/page", "/_stcore/health"])
def test_every_response_has_the_headers(public: str, path: str) -> None:
    headers = {name.lower(): value for name, value in answer(public + path)[2].items()}
    assert headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_health_is_for_everybody_and_metrics_are_for_the_key(public: str) -> None:
    assert answer(f"{public}/healthz")[:2] == (200, "ok\n")
    for wrong in ("", "x", KEY[:-1], "é"):
        assert answer(f"{public}/metrics", wrong)[0] == 404
    status, text, _ = answer(f"{public}/metrics", KEY)
    assert status == 200
    assert "eab_generated_tokens_total" in text


def test_a_run_asks_nobody_but_the_server_and_is_counted(public: str, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{public}/?prompt=A%20secret%20word&max_new_tokens=8&seed=1")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".st-key-stop_button")).to_be_visible()
    expect(page.locator(".st-key-stop_button")).to_have_count(0, timeout=60_000)
    server, places = urlsplit(public).netloc, map(urlsplit, asked)
    assert {place.netloc for place in places if place.scheme in ("http", "https")} == {server}
    counted = answer(f"{public}/metrics", KEY)[1]
    assert 'eab_runs_total{reason="finished"} 1.0' in counted
    assert "secret" not in counted


def test_limits_stand_in_the_controls(public: str, page: Page) -> None:
    page.goto(public)
    slider = page.get_by_role("slider", name="Max paths")
    expect(slider).to_have_attribute("max", "20")
    expect(page.get_by_text("Folder", exact=True)).to_have_count(0)
    expect(page.get_by_text("Hub", exact=True)).to_have_count(0)
    page.get_by_role("button", name="Open").first.click()
    page.get_by_role("tab", name="Saved runs").click()
    expect(page.get_by_text("Saved runs are switched off on this server.")).to_be_visible()


def test_a_link_to_another_model_shows_what_is_offered(public: str, page: Page) -> None:
    page.goto(f"{public}/?model=/root/.ssh&prompt=A%20little&seed=1")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    expect(page.get_by_text("/root/.ssh")).to_have_count(0)


def test_the_page_of_the_server_opens_with_the_key_only(public: str, page: Page) -> None:
    page.goto(f"{public}/server")
    box = page.get_by_role("textbox", name="Key")
    box.fill("wrong")
    box.press("Enter")
    expect(page.get_by_text("This is not the key of this server.")).to_be_visible()
    box.fill(KEY)
    box.press("Enter")
    expect(page.get_by_role("heading", name="Rules")).to_be_visible()
    expect(page.get_by_text("(hidden)")).to_be_visible()
    assert KEY not in page.get_by_role("table").inner_text()
