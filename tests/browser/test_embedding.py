"""The page inside other pages: from JupyterLab's launcher, and in a frame of another site."""

import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from installation import Installation, build
from playwright.sync_api import Browser, Frame, Page, expect
from static_files import serving_files
from websockets import Origin, Subprotocol
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from eab.assets import ASSETS
from scripts.servers import free_port, serving, serving_explorer

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1366, "height": 768})
    context.set_default_timeout(120_000)
    context.add_init_script("localStorage.setItem('eab-tour', 'yes')")
    yield context.new_page()
    context.close()


def check_explorer(frame: Frame) -> None:
    """Watch the first run, open a run file, and make a run: WebSocket, board files and upload."""
    expect(frame.locator(".eab .box.path").first).to_be_visible()
    frame.get_by_test_id("stMain").get_by_role("button", name="Open").click()
    frame.get_by_role("tab", name="Run file").click()
    frame.locator("input[type=file]").set_input_files(ASSETS / "runs" / "market.eab")
    prompt = frame.locator(".eab .box.prompt")
    expect(prompt).to_have_attribute("aria-label", re.compile("Grandma went to the market"))
    before = frame.url
    frame.get_by_role("button", name="Run", exact=True).click()
    frame.wait_for_function("before => location.href !== before", arg=before)
    expect(frame.get_by_role("button", name="Run", exact=True)).to_be_visible()  # it has ended
    expect(frame.locator(".eab .box.path").first).to_be_visible()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A JupyterLab as a hub starts it, under a path, in an environment with the wheel."""
    pytest.importorskip("jupyterlab")
    pytest.importorskip("jupyter_server_proxy")
    _, wheel = build(tmp_path_factory.mktemp("built"))
    installed = Installation(wheel, tmp_path_factory.mktemp("installed"))
    port = free_port()
    command = [str(installed.python), "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += [f"--port={port}", "--ip=127.0.0.1", "--IdentityProvider.token="]
    command += ["--ServerApp.base_url=/user/ann/", "--ServerApp.allow_remote_access=True"]
    own = {f"JUPYTER_{name}_DIR": str(installed.work) for name in ("CONFIG", "DATA", "RUNTIME")}
    own |= {"JUPYTER_PATH": f"{sys.prefix}/share/jupyter", "EAB_STORE": "off"}
    own |= {"JUPYTER_CONFIG_PATH": f"{sys.prefix}/etc/jupyter"}  # of the borrowed packages, too
    options = {"env": installed.environment | own, "cwd": installed.work}
    with serving(command, port, "user/ann/api", **options) as (address, _):
        yield f"{address}/user/ann"
    installed.assert_checkout_untouched()


def test_the_launcher_of_jupyterlab_opens_the_explorer(lab: str, page: Page) -> None:
    page.goto(f"{lab}/lab?reset")
    tile = page.locator(".jp-LauncherCard", has_text="EAB Explorer")
    expect(tile).to_be_visible(timeout=60_000)
    with page.expect_popup() as opened:
        tile.click()
    assert "/user/ann/eab-explorer" in opened.value.url
    check_explorer(opened.value.main_frame)


def websocket_status(lab: str, origin: str) -> int:
    """The status of the response to a page of this origin, on a hub with the name hub.example."""
    where = urlsplit(lab)
    try:
        with connect(
            f"ws://hub.example{where.path}/eab-explorer/_stcore/stream",
            sock=socket.create_connection((where.hostname, where.port)),
            origin=Origin(origin),
            subprotocols=[Subprotocol("streamlit")],
        ):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


def test_jupyter_forwards_only_what_its_own_pages_ask(lab: str) -> None:
    assert websocket_status(lab, "http://hub.example") == 101
    assert websocket_status(lab, "http://evil.example") == 403


@pytest.fixture(scope="module")
def framed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page of the site `localhost` that has the explorer of 127.0.0.1, another site, in a frame."""
    folder: Path = tmp_path_factory.mktemp("site")
    with serving_files(folder) as (files, _):
        site = files.replace("127.0.0.1", "localhost")
        rules = {"EAB_PUBLIC": "1", "EAB_RULE_FRAME_ANCESTORS": site}
        with serving_explorer(env=os.environ | rules) as (address, _):
            page = f'<iframe src="{address}" width="1200" height="700"></iframe>'
            (folder / "index.html").write_text(page, encoding="utf-8")
            yield site


def test_the_page_works_in_a_frame_of_a_site_that_the_rules_list(framed: str, page: Page) -> None:
    page.goto(framed)
    check_explorer(page.frames[1])
    page.goto(framed.replace("localhost", "127.0.0.1"))  # not listed
    assert page.frames[1].url.startswith("chrome-error")
