"""The notebook of the project in a real JupyterLab: its boards grow, and respond to the mouse, to
keys and the threshold line. A saved copy shows stills of the boards.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_steps import box_of
from places import ROOT
from playwright.sync_api import Browser, Locator, Page, expect
from waiting import wait_until

from eab.engine.models.sources import EMBEDDED_FOLDER
from eab.share.widget import WIDGET
from scripts.servers import free_port, serving

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PATIENCE = 120_000  # ms, for a kernel that imports torch on a busy machine

GROWING = """\
import time

import eab

model = eab.load_model("embedded")


def slowly(ids, scores):  # no text ends by itself
    time.sleep(0.1)
    scores[:, list(model.stop_ids)] = -1e9
    return scores


live = eab.explore(model, "Once upon a time", max_new_tokens=400, logits_processor=slowly)
live
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JupyterLab's folder, with a copy of the notebook and a notebook with a long run."""
    import nbformat  # here: takes seconds, and each worker imports all test files

    folder = tmp_path_factory.mktemp("lab")
    shutil.copy(ROOT / "notebooks" / "explore.ipynb", folder)
    growing = nbformat.read(folder / "explore.ipynb", as_version=4)
    growing.cells = [nbformat.v4.new_code_cell(code) for code in (GROWING, "live.status")]
    nbformat.write(growing, folder / "growing.ipynb")
    return folder


@pytest.fixture(scope="module")
def lab(folder: Path) -> Iterator[str]:
    """The address of a JupyterLab with settings of its own, on the embedded model."""
    pytest.importorskip("jupyterlab")
    if not (EMBEDDED_FOLDER / "model.safetensors").is_file():
        pytest.skip("the embedded model is not in assets/model")
    port = free_port()
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += [f"--port={port}", "--ip=127.0.0.1", "--IdentityProvider.token="]
    homes = [f"XDG_{name}_HOME" for name in ("CONFIG", "STATE", "CACHE", "DATA")]
    homes += [f"JUPYTER_{name}_DIR" for name in ("CONFIG", "DATA", "RUNTIME")]
    homes += [f"JUPYTERLAB_{name}_DIR" for name in ("SETTINGS", "WORKSPACES")]
    own = {name: str(folder / ".own" / name) for name in homes}
    own |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command.append(f"--notebook-dir={folder}")
    with serving(command, port, "api", env=os.environ | own, cwd=folder) as (address, _):
        yield address


@pytest.fixture(scope="module")
def notebook(browser: Browser, lab: str) -> Iterator[Page]:
    """The notebook, with all its cells run."""
    context = browser.new_context(viewport={"width": 1500, "height": 1000}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(f"{error}\n{error.stack}"))
    open_notebook(page, lab, "explore")
    run_all(page)
    last = page.locator(".jp-CodeCell", has_text="show_lesson")
    expect(last.locator(".jupyter-widgets").first).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text("(ipykernel) | Idle")).to_be_visible(timeout=PATIENCE)
    yield page
    ours = [problem for problem in problems if "eab-board" in problem]
    context.close()
    assert not ours, ours


def open_notebook(page: Page, lab: str, name: str) -> None:
    page.goto(f"{lab}/lab/tree/{name}.ipynb?reset")
    expect(page.locator(".jp-Notebook .jp-Cell").first).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text("(ipykernel) | Idle")).to_be_visible(timeout=PATIENCE)


def run_all(page: Page) -> None:
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()


SHOWN = ("eab.explore(", "eab.show(run)", "eab.show_lesson(")


def outputs_after(page: Page, code: str) -> Locator:
    """The visible outputs of the cell that has this code."""
    cell = page.locator(".jp-CodeCell", has_text=code)
    cell.scroll_into_view_if_needed()
    return cell.locator(".jp-OutputArea-child").filter(visible=True)


def board_after(page: Page, code: str) -> Locator:
    """The board of the cell that has this code."""
    board = page.locator(".jp-CodeCell", has_text=code).locator(".eab")
    board.scroll_into_view_if_needed()
    return board


def drag(page: Page, board: Locator, dy: int) -> None:
    """Drag the threshold line of the board by `dy` px."""
    board.locator("svg.entropy").scroll_into_view_if_needed()
    line = box_of(board.locator("svg.entropy .grip"))
    x, y = line["x"] + line["width"] / 2, line["y"] + line["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y + dy, steps=5)
    page.mouse.up()


def save(page: Page, folder: Path) -> None:
    """Press the keys that save the notebook, and wait until its file has changed."""
    file = folder / "explore.ipynb"
    before = file.stat().st_mtime_ns
    page.keyboard.press("Control+s")
    wait_until(lambda: file.stat().st_mtime_ns != before, pause=lambda: page.wait_for_timeout(200))


def test_the_boards_grow_and_respond_to_the_threshold_line(notebook: Page) -> None:
    page = notebook
    expect(board_after(page, "eab.explore(").locator(".status")).to_have_text("Done after 10 steps")
    for code in ("eab.explore(", "eab.show(run)"):
        board = board_after(page, code)
        paths = board.get_attribute("data-paths")
        drag(page, board, -60)
        note = board.locator(".entropy-panel")
        expect(note).to_contain_text("Recomputed from the recording", timeout=PATIENCE)
        expect(board).to_have_attribute("data-paths", "1")
        board.get_by_role("button", name="Reset").click()
        expect(note).not_to_contain_text("Recomputed")
        expect(board).to_have_attribute("data-paths", f"{paths}")


def test_stills_are_hidden_while_the_boards_are_live(notebook: Page) -> None:
    for code in SHOWN:
        expect(outputs_after(notebook, code)).to_have_count(1)
        expect(outputs_after(notebook, code).locator("[data-eab-still]")).to_have_count(0)


def test_keys_act_on_the_board_except_those_that_save_the_notebook(
    notebook: Page, folder: Path
) -> None:
    page = notebook
    board = board_after(page, "eab.show(run)")
    cells = page.locator(".jp-Notebook .jp-Cell").count()
    board.scroll_into_view_if_needed()
    board.focus()
    for key in ("Home", "ArrowRight", "d", "d", "x", "ArrowRight"):
        page.keyboard.press(key)
    expect(board).to_have_attribute("data-cursor", "2")
    expect(board).to_be_focused()
    save(page, folder)
    assert page.locator(".jp-Notebook .jp-Cell").count() == cells


def saved_notebook(page: Page, folder: Path) -> Any:
    import nbformat

    board_after(page, "eab.show(run)").focus()
    save(page, folder)
    return nbformat.read(folder / "explore.ipynb", as_version=4)


@pytest.mark.parametrize("trusted", [True, False])
def test_a_saved_notebook_shows_stills_and_no_error(
    notebook: Page, lab: str, folder: Path, trusted: bool
) -> None:
    """JupyterLab trusts the outputs of a file that it saved itself."""
    import nbformat

    name = "trusted" if trusted else "foreign"
    saved = saved_notebook(notebook, folder)
    if not trusted:
        saved.cells[0].source = "Changed elsewhere"
    nbformat.write(saved, folder / f"{name}.ipynb")
    page = notebook.context.new_page()
    open_notebook(page, lab, name)
    if trusted:
        found = page.get_by_text("model not found")
        expect(found).to_have_count(len(SHOWN), timeout=PATIENCE)
    for code in SHOWN:
        shown = outputs_after(page, code)
        expect(shown).to_have_count(1)
        expect(shown).to_contain_text("Run this cell")
    for code in SHOWN[:2]:
        picture = outputs_after(page, code).locator("img")
        expect(picture).to_have_attribute("alt", "1 fork in 10 steps: 3 paths.")
        assert picture.evaluate("one => one.naturalWidth") > 300
    page.close()


def test_an_html_export_of_the_notebook_shows_stills_offline(
    browser: Browser, notebook: Page, folder: Path
) -> None:
    saved = saved_notebook(notebook, folder)
    bundles = [one.data for cell in saved.cells for one in cell.get("outputs", []) if "data" in one]
    states = {bundle[WIDGET]["model_id"]: {} for bundle in bundles if WIDGET in bundle}
    saved.metadata["widgets"] = {WIDGET.replace("view", "state"): {"state": states}}
    html, _ = pytest.importorskip("nbconvert").HTMLExporter().from_notebook_node(saved)
    page = browser.new_context(offline=True).new_page()
    page.set_content(html)
    expect(page.locator("[data-eab-still]").filter(visible=True)).to_have_count(len(SHOWN))
    page.context.close()


def press_on_cell(page: Page, code: str, *keys: str) -> None:
    """Press keys that act on a cell as a whole."""
    page.locator(".jp-CodeCell", has_text=code).locator(".jp-InputPrompt").click()
    for key in keys:
        page.keyboard.press(key)


def status_in_python(page: Page) -> str:
    """Run the cell with `live.status` again, and return its output."""
    cell = page.locator(".jp-CodeCell", has_text="live.status")
    prompt = cell.locator(".jp-InputPrompt")
    before = prompt.inner_text()
    press_on_cell(page, "live.status", "Control+Enter")
    expect(prompt).not_to_have_text(before, timeout=PATIENCE)
    expect(prompt).to_have_text(re.compile(r"\d"), timeout=PATIENCE)
    return cell.locator(".jp-OutputArea-output").inner_text()


def test_a_run_stops_when_its_cell_is_deleted_but_not_when_it_is_moved(
    notebook: Page, lab: str
) -> None:
    page = notebook.context.new_page()
    open_notebook(page, lab, "growing")
    run_all(page)
    status = page.locator(".eab .status")
    expect(status).to_contain_text("Step", timeout=PATIENCE)
    press_on_cell(page, "eab.explore(", "Control+Shift+ArrowDown")
    expect(page.locator(".jp-CodeCell").first).to_contain_text("live.status")
    page.wait_for_timeout(6000)  # longer than a run continues without a board
    expect(status).to_contain_text("Step")
    press_on_cell(page, "eab.explore(", "d", "d")
    expect(page.locator(".eab")).to_have_count(0)
    wait_until(
        lambda: "Stopped after" in status_in_python(page), pause=lambda: page.wait_for_timeout(500)
    )
    page.keyboard.press("z")  # undone
    expect(status).to_contain_text("Stopped after", timeout=PATIENCE)
    page.close()
