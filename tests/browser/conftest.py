"""Fixtures: a real Chromium and a real server, for tests that use the page as people do."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from board_page import LIGHT, BoardPage, Boards
from browser_steps import OpenPage
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from eab.run import RunState
from scripts.servers import serving_explorer

expect.set_options(timeout=120_000)  # two cores may run a model, a server and a browser
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Rerun a failed browser test once, since a model, a page and a browser may share two cores.
    The summary names such tests; one that appears repeatedly has a real problem.
    """
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.flaky(reruns=1))


def chromium() -> str | None:
    """The path of Chromium on Debian, Ubuntu, Fedora or macOS, or the one in EAB_CHROMIUM."""
    names = (os.environ.get("EAB_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, filter(None, names)) if path), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        pytest.skip("no Chromium on this machine (install chromium, or set EAB_CHROMIUM)")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=QUIET)
        yield running
        running.close()


def tell(page: Page) -> None:
    """Print the text of a page; pytest shows it if the test fails."""
    try:
        words = page.locator("body").inner_text(timeout=2_000)
    except PlaywrightError as error:
        words = f"{error}"
    print(f"--- {page.url} shows:\n{words[:3000]}\n[…]\n{words[3000:][-3000:]}")


@pytest.fixture(scope="session")
def server_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file with the explorer's output."""
    return tmp_path_factory.mktemp("server") / "log"


@pytest.fixture(scope="session")
def _running(server_log: Path) -> Iterator[tuple[str, int]]:
    """The address and the process id of the explorer, which is started as users start it."""
    with server_log.open("wb") as log, serving_explorer(stdout=log, stderr=log) as running:
        yield running


@pytest.fixture(scope="session")
def address(browser: Browser, _running: tuple[str, int]) -> str:
    """The address of the explorer."""
    return _running[0]


@pytest.fixture(scope="session")
def server(_running: tuple[str, int]) -> psutil.Process:
    """The process of the explorer's server."""
    return psutil.Process(_running[1])


@pytest.fixture(scope="session")
def _contexts(browser: Browser) -> Iterator[dict[str, BrowserContext]]:
    """Reused browser contexts, by their options. They keep only the files that the server sent, so
    that the scripts of the page are read and compiled once.
    """
    contexts: dict[str, BrowserContext] = {}
    yield contexts
    for context in contexts.values():
        context.close()


@pytest.fixture
def open_page(
    browser: Browser, address: str, server_log: Path, _contexts: dict[str, BrowserContext]
) -> Iterator[OpenPage]:
    """A function `open_page(query="", first_visit=False, **options)` that opens the explorer in a
    browser context of which this test has no other page. Only a first visit gets the board's tour.
    """
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    def context_of(first_visit: bool, options: dict[str, Any]) -> BrowserContext:
        found = _contexts.get(f"{options}")
        if found is None or found in contexts or first_visit:
            found = browser.new_context(
                viewport={"width": 1280, "height": 1000}, accept_downloads=True, **options
            )
            if not first_visit:
                found.add_init_script("localStorage.setItem('eab-tour', 'yes')")
                _contexts.setdefault(f"{options}", found)
        contexts.append(found)
        return found

    def open_page(query: str = "", first_visit: bool = False, **options: Any) -> Page:
        page = context_of(first_visit, options).new_page()
        page.set_default_timeout(120_000)
        page.on("pageerror", lambda error: problems.append(f"{error}\n{error.stack}"))
        page.goto(address + query)
        return page

    yield open_page
    for context in contexts:
        for page in context.pages:
            tell(page)
            with suppress(PlaywrightError):
                page.evaluate("() => localStorage.clear()")
            page.close()
        context.clear_cookies()
        if context not in _contexts.values():
            context.close()
    print(f"--- The server's last words:\n{server_log.read_text(errors='replace')[-3000:]}")
    ours = [one for one in problems if "/static/js/" not in one]  # the others are Streamlit's
    assert not ours, ours


@pytest.fixture
def new_page(browser: Browser) -> Iterator[OpenPage]:
    """A function `new_page(width=1280, height=900, **options)` that opens a page in a new context.
    The test fails if a script of such a page does.
    """
    contexts, problems = [], []

    def new_page(width: int = 1280, height: int = 900, **options: Any) -> Page:
        size = {"width": width, "height": height}
        contexts.append(browser.new_context(viewport=size, accept_downloads=True, **options))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        return page

    yield new_page
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def board(new_page: OpenPage) -> Boards:
    """A function that opens a page with nothing but a board."""

    def make(theme: str = LIGHT, width: int = 1280, **options: Any) -> BoardPage:
        return BoardPage(new_page(width, **options), theme)

    return make


@pytest.fixture
def still(board: Boards) -> Boards:
    """A function that opens a board without motion that shows a run."""

    def make(run: RunState, **options: Any) -> BoardPage:
        shown = board(reduced_motion="reduce")
        shown.feed(run, **options)
        return shown

    return make


@pytest.fixture
def screen(browser: Browser, board: Boards) -> Boards:
    """A function that opens a board that fills a window of this size."""

    def make(width: int, height: int, **options: object) -> BoardPage:
        theme = f"{LIGHT};margin:0;--eab-board-height:{height}px"
        shown = board(theme, width=width, **options)
        shown.page.set_viewport_size({"width": width, "height": height})
        return shown

    return make
