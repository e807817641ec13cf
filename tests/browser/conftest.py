"""A real Chromium and a real server for the tests that look at the page as people do."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from board_page import LIGHT, BoardPage
from explorer_server import free_port, serve_command, serving
from places import ROOT
from playwright.sync_api import Browser, Page, expect, sync_playwright
from playwright.sync_api import Error as PlaywrightError

expect.set_options(timeout=30_000)  # two cores may serve a model, a server and a browser at once
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
    """A browser test that fails is tried once more, since two cores serve a model, a page and a
    browser at once. The summary names it: a test that is there again and again is wrong.
    """
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.flaky(reruns=1))


def chromium() -> str | None:
    """Where Debian, Ubuntu, Fedora or macOS put it; EAB_CHROMIUM names another place."""
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
    """Print what a page shows: pytest shows that where a test fails."""
    try:
        words = page.locator("body").inner_text(timeout=2_000)
    except PlaywrightError as error:
        words = f"{error}"
    print(f"--- {page.url} shows:\n{words[:3000]}\n[…]\n{words[3000:][-3000:]}")


@pytest.fixture(scope="session")
def server_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the explorer writes."""
    return tmp_path_factory.mktemp("server") / "log"


@pytest.fixture(scope="session")
def _running(server_log: Path) -> Iterator[tuple[str, int]]:
    """The explorer, started as users start it: its address and its process id."""
    port = free_port()
    with (
        server_log.open("wb") as log,
        serving(serve_command(port), port, cwd=ROOT, stdout=log, stderr=log) as running,
    ):
        yield running


@pytest.fixture(scope="session")
def address(browser: Browser, _running: tuple[str, int]) -> str:
    """Where the explorer is."""
    return _running[0]


@pytest.fixture(scope="session")
def server(_running: tuple[str, int]) -> psutil.Process:
    """The process that serves it."""
    return psutil.Process(_running[1])


@pytest.fixture
def open_page(browser: Browser, address: str, server_log: Path) -> Iterator[Callable[..., Page]]:
    """open_page(query="", first_visit=False, **options) -> the explorer in a browser context of its
    own; only a first visit is shown the tour of the board.
    """
    contexts = []
    problems: list[str] = []

    def open_page(query: str = "", first_visit: bool = False, **options: object) -> Page:
        context = browser.new_context(
            viewport={"width": 1280, "height": 1000}, accept_downloads=True, **options
        )  # type: ignore[arg-type]
        contexts.append(context)
        if not first_visit:
            context.add_init_script("localStorage.setItem('eab-tour', 'yes')")
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: problems.append(f"{error}\n{error.stack}"))
        page.goto(address + query)
        return page

    yield open_page
    for context in contexts:
        for page in context.pages:
            tell(page)
        context.close()
    print(f"--- The server's last words:\n{server_log.read_text(errors='replace')[-3000:]}")
    ours = [
        problem for problem in problems if "/static/js/" not in problem
    ]  # else it is Streamlit's own
    assert not ours, ours


@pytest.fixture
def board(browser: Browser) -> Iterator[Callable[..., BoardPage]]:
    contexts = []

    def make(theme: str = LIGHT, width: int = 1280, **options: Any) -> BoardPage:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, accept_downloads=True, **options
        )
        contexts.append(context)
        page = context.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        made = BoardPage(page, theme)
        made.problems = problems  # type: ignore[attr-defined]
        boards.append(made)
        return made

    boards: list[BoardPage] = []
    yield make
    found = [problem for made in boards for problem in made.problems]  # type: ignore[attr-defined]
    for context in contexts:
        context.close()
    assert found == []


@pytest.fixture
def screen(browser: Browser, board: Callable[..., BoardPage]) -> Callable[..., BoardPage]:
    """A board that fills a window of this size."""

    def make(width: int, height: int, **options: object) -> BoardPage:
        theme = f"{LIGHT};margin:0;--eab-board-height:{height}px"
        shown = board(theme, width=width, **options)
        shown.page.set_viewport_size({"width": width, "height": height})
        return shown

    return make
