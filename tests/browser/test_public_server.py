"""A public server (`eab app --public`), as a browser and as curl see it."""

import base64
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect
from websockets import Origin, Subprotocol
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from eab.assets import ASSETS
from scripts.servers import serving_explorer

pytestmark = pytest.mark.slow

KEY = "a-key-of-the-tests"
NAME = "explorer.example"
OUR_ICON = (
    f"data:image/svg+xml;base64,{base64.b64encode((ASSETS / 'icon.svg').read_bytes()).decode()}"
)
PAGES = ("", "learn", "compare", "tune", "memory", "bmc", "speculative", "batching", "quantization")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file with the output of the public server."""
    return tmp_path_factory.mktemp("log") / "server.log"


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory, log: Path) -> Iterator[str]:
    """The address of a public server that allows 20 paths."""
    rules: Path = tmp_path_factory.mktemp("rules") / "eab.toml"
    text = f'max_paths = 20\nkey = "{KEY}"\nhosts = ["{NAME}"]\n'
    rules.write_text(text, encoding="utf-8")
    environment = os.environ | {"EAB_PUBLIC": "1", "EAB_RULES": str(rules)}
    with log.open("wb") as file, serving_explorer(env=environment, stderr=file) as (address, _):
        yield address


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1366, "height": 768})
    yield context.new_page()
    context.close()


def answer(address: str, host: str = "") -> tuple[int, str, dict[str, str]]:
    """The status, text and headers of the response to a GET request."""
    asked = urllib.request.Request(address, headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(asked, timeout=120) as response:
            return response.status, response.read().decode(), dict(response.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), dict(error.headers)


@pytest.mark.parametrize("path", ["/", "/healthz", "/no/such/page", "/_stcore/health"])
def test_every_response_has_security_headers_and_other_host_names_are_refused(
    public: str, path: str
) -> None:
    refused = answer(public + path, host="evil.example")
    assert (refused[0], "add the name to `hosts`" in refused[1]) == (421, True)
    answered = answer(public + path, host=f"{NAME}:443")
    assert answered[0] in (200, 404)
    for _, _, given in (refused, answered):
        headers = {name.lower(): value for name, value in given.items()}
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_health_is_public(public: str) -> None:
    assert answer(f"{public}/healthz")[:2] == (200, "ok\n")
    assert answer(f"{public}/_stcore/metrics")[0] == 404, "Streamlit's own"


def websocket(address: str, host: str, origin: str = "") -> ClientConnection:
    """A WebSocket to the server under this host name, from a page of this origin."""
    port = urlsplit(address).port
    return connect(
        f"ws://{host}:{port}/_stcore/stream",
        sock=socket.create_connection(("127.0.0.1", port)),
        origin=Origin(origin.format(port=port)) if origin else None,
        subprotocols=[Subprotocol("streamlit")],
    )


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        (NAME, f"http://{NAME}:{{port}}", 101),
        (NAME, "", 403),
        (NAME, "http://evil.example", 403),
        ("evil.example", "http://evil.example:{port}", 421),
    ],
)
def test_a_websocket_needs_a_known_host_name_and_a_matching_origin(
    public: str, host: str, origin: str, status: int
) -> None:
    try:
        with websocket(public, host, origin) as opened:
            found = opened.response.status_code if opened.response else 0
    except InvalidStatus as refused:
        found = refused.response.status_code
    assert found == status


@pytest.mark.parametrize("message", [b"\xff" * 50, "some text"], ids=["bytes", "text"])
def test_an_invalid_message_ends_the_connection_without_a_traceback(
    public: str, log: Path, message: str | bytes
) -> None:
    with websocket(public, NAME, f"http://{NAME}:{{port}}") as opened:
        opened.send(message)
        with suppress(ConnectionClosed):
            list(opened)  # until the server closes it
    assert answer(f"{public}/healthz")[0] == 200
    assert "Traceback" not in log.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_no_page_loads_anything_that_the_policy_forbids(public: str, page: Page, name: str) -> None:
    wrong: list[str] = []

    def note(said: ConsoleMessage) -> None:
        # Streamlit first looks for its server under the path of the page.
        if said.type == "error" and not (
            "404" in said.text and "/_stcore/" in said.location["url"]
        ):
            wrong.append(said.text)

    page.on("console", note)
    page.on("requestfailed", lambda request: wrong.append(request.url))
    page.goto(f"{public}/{name}")
    expect(page.locator("h1, .eab").first).to_be_visible()
    expect(page.locator("link[rel='shortcut icon']")).to_have_attribute("href", OUR_ICON)
    page.wait_for_load_state("networkidle")
    assert wrong == []


def test_a_run_sends_requests_only_to_the_server(public: str, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{public}/?prompt=A%20secret%20word&max_new_tokens=8&seed=1")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".st-key-stop_button")).to_be_visible()
    expect(page.locator(".st-key-stop_button")).to_have_count(0)
    server, places = urlsplit(public).netloc, map(urlsplit, asked)
    assert {place.netloc for place in places if place.scheme in ("http", "https")} == {server}


def test_the_controls_show_the_limits_and_links_cannot_exceed_them(public: str, page: Page) -> None:
    page.goto(public)
    slider = page.get_by_role("slider", name="Max paths")
    expect(slider).to_have_attribute("max", "20")
    expect(page.get_by_text("Folder", exact=True)).to_have_count(0)
    expect(page.get_by_text("Hub", exact=True)).to_have_count(0)
    page.locator(".st-key-header").get_by_role("button", name="Open").click()
    page.get_by_role("tab", name="Saved runs").click()
    expect(page.get_by_text("Saved runs are switched off on this server.")).to_be_visible()
    page.goto(f"{public}/?model=/root/.ssh&prompt=A%20little&seed=1")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    expect(page.get_by_text("/root/.ssh")).to_have_count(0)


def test_the_server_page_opens_only_with_the_key(public: str, page: Page) -> None:
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
