"""A notebook in a real marimo: its boards grow, respond to the mouse and, through Python, to Stop,
and follow the dark or light theme of the page.
"""

import re
from collections.abc import Iterator

import pytest
from browser_steps import box_of
from notebook_server import serving_notebooks
from playwright.sync_api import Browser, Locator, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PATIENCE = 120_000  # ms, for a kernel that imports torch on a busy machine
PATHS = "3"  # paths of the finished run
LONG = 400  # steps; no text ends earlier, so the run has to be stopped
NOTEBOOK = f"""
import marimo

app = marimo.App(width="full")


@app.cell
def _():
    import eab

    explorer = eab.EntropyAdaptiveBranching("embedded", max_new_tokens=12)
    run = explorer.run("When I grow up I want to be a", entropy_threshold=0.5, max_paths=6)
    return eab, explorer, run


@app.cell
def _(eab, run):
    eab.show(run)
    return


@app.cell
def _(eab, explorer):
    def newline(ids, scores):  # no text ends by itself
        scores[:, list(explorer.model.stop_ids)] = -1e9
        return scores

    settings = {{"max_new_tokens": {LONG}, "logits_processor": newline}}
    eab.explore(explorer.model, "Once upon a time", **settings)
    return


if __name__ == "__main__":
    app.run()
"""
FOLLOWS_SYSTEM = """
[tool.marimo.display]
theme = "system"
"""


@pytest.fixture(scope="module")
def marimo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a marimo that runs the notebook."""
    folder = tmp_path_factory.mktemp("marimo")
    (folder / "notebook.py").write_text(NOTEBOOK, encoding="utf-8")
    (folder / "pyproject.toml").write_text(FOLLOWS_SYSTEM, encoding="utf-8")
    options = ["--yes", "run", "notebook.py", "--headless", "--port={port}", "--host=127.0.0.1"]
    with serving_notebooks("marimo", folder, "health", *options, "--no-token") as address:
        yield address


@pytest.fixture(scope="module")
def notebook(browser: Browser, marimo: str) -> Iterator[Page]:
    """The notebook in a dark system theme, with both boards."""
    context = browser.new_context(
        viewport={"width": 1500, "height": 1000}, reduced_motion="reduce", color_scheme="dark"
    )
    page = context.new_page()
    page.set_default_timeout(120_000)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(f"{error}\n{error.stack}"))
    page.goto(marimo)
    expect(page.locator(".eab")).to_have_count(2, timeout=PATIENCE)
    yield page
    ours = [problem for problem in problems if "eab" in problem]
    context.close()
    assert not ours, ours


def boards(page: Page) -> tuple[Locator, Locator]:
    """The board of the finished run, and the board of the live run."""
    return page.locator(".eab").first, page.locator(".eab").last


def test_a_board_grows_until_it_is_stopped(notebook: Page) -> None:
    _, live = boards(notebook)
    live.scroll_into_view_if_needed()
    first = live.locator(".status").text_content()
    expect(live.locator(".status")).to_contain_text("Step")
    expect(live.locator(".status")).not_to_have_text(first or "")
    live.get_by_role("button", name="Stop generation").click()
    expect(live.locator(".status")).to_contain_text("Stopped after")
    steps = int((live.locator(".status").text_content() or "").split()[2])
    assert 0 < steps < LONG


def test_a_click_opens_the_inspector(notebook: Page) -> None:
    finished, _ = boards(notebook)
    finished.scroll_into_view_if_needed()
    expect(finished).to_have_attribute("data-paths", PATHS)
    place = box_of(finished.locator(".box.path .frame").first)
    notebook.mouse.click(place["x"] + place["width"] / 9, place["y"] + place["height"] / 2)
    expect(finished.locator(".inspector .candidates li").first).to_be_visible()


def ink(element: Locator) -> str:
    """The text colour of an element."""
    return str(element.evaluate("element => getComputedStyle(element).color"))


def test_the_boards_follow_the_theme_of_the_page(notebook: Page) -> None:
    dark, inks = re.compile(r"\bdark\b"), set()
    for board in boards(notebook):
        expect(board).to_have_class(dark)
        inks.add(ink(board))
    notebook.emulate_media(color_scheme="light")
    for board in boards(notebook):
        expect(board).not_to_have_class(dark)
        inks.add(ink(board))
    assert len(inks) == 2, inks
