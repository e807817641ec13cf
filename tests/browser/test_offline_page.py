"""The HTML file of a run in a real Chromium, opened from disk without a server: it plays and makes
no requests.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_steps import OpenPage, cursor_is
from invented_runs import WORDS, invented_run
from made_runs import bundled
from playwright.sync_api import Page, expect

from eab.engine.what_if.resimulate import resimulate
from eab.figures.run_comparison import tree_change_sentence
from eab.run import fold
from eab.run.events import Event
from eab.share.exports import save_html
from eab.token_text import visible

pytestmark = [pytest.mark.browser, pytest.mark.slow]
STORY = invented_run(5, 20, 8)
MAX_ROWS = 200  # of the table of texts at first, as in page.js
HOSTILE = [
    "</script><script>document.title='broken'</script>",
    "<!--<script>",
    "<img src='http://127.0.0.1:9/x' onerror=\"document.title='broken'\">",
    "\u202eright to left",
    "$x$",
    "\n",
    "\udce2\udc82",
]


@pytest.fixture
def open_run(new_page: OpenPage, tmp_path: Path) -> Iterator[OpenPage]:
    """A function that saves events and opens the file; no console message or request may follow."""
    file, said, asked = tmp_path / "run.html", [], set()

    def open_run(events: list[Event], live: bool = False, **options: Any) -> Page:
        page = new_page(**options)
        page.on("console", lambda line: said.append(line))
        page.on("request", lambda request: asked.add(request.url))
        save_html(events, file, live)
        page.goto(file.as_uri())
        return page

    yield open_run
    assert [line.text for line in said if line.type in ("error", "warning")] == []
    assert {url for url in asked if not url.startswith("blob:")} == {file.as_uri()}


def test_the_page_plays_by_itself_and_ends_at_the_last_step(open_run: OpenPage) -> None:
    page = open_run(STORY)
    page.wait_for_function(
        "() => Number(document.querySelector('.eab').dataset.cursor) % 19 > 0"
    )  # while it plays
    cursor_is(page, 19)
    assert page.title() == "Once upon a time"


def test_the_board_has_the_focus_from_the_start(open_run: OpenPage) -> None:
    page = open_run(STORY, reduced_motion="reduce")
    expect(page.locator("#texts table")).to_be_visible()  # its data are unpacked
    page.keyboard.press("Home")
    cursor_is(page, 0)


def test_hostile_text_is_shown_as_plain_text(open_run: OpenPage) -> None:
    events = invented_run(3, 12, 4, WORDS + HOSTILE)
    page = open_run(events, reduced_motion="reduce")
    expect(page.locator("#texts table")).to_be_visible()
    page.keyboard.press("End")
    page.keyboard.press("ArrowDown")
    assert page.title() == "Once upon a time"
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    text = page.locator("body").text_content() or ""
    assert "document.title='broken'" in text
    assert "\u202e" not in text


def test_the_page_has_a_table_downloads_a_fitting_width_and_both_themes(open_run: OpenPage) -> None:
    page = open_run(STORY, reduced_motion="reduce", color_scheme="light")
    expect(page.locator("#texts tbody tr")).to_have_count(len(fold(STORY).leaves()))
    for kind, begin in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        page.get_by_role("button", name=f"Download the tree of texts as {kind}").focus()
        with page.expect_download() as waiting:
            page.keyboard.press("Enter")
        name, data = waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()
        assert re.fullmatch(rf"[\w-]+-[0-9a-f]{{6}}-tree\.{kind.lower()}", name)
        assert data.startswith(begin)
    assert int.from_bytes(data[16:20], "big") > 1000, "the width of the PNG"
    shared = page.locator("svg.memory rect.shared").first
    expect(shared).to_have_css("fill", "rgb(0, 114, 178)")
    page.emulate_media(color_scheme="dark")
    expect(shared).to_have_css("fill", "rgb(86, 180, 233)")
    for width in (400, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_all_of_many_texts_can_be_read(open_run: OpenPage) -> None:
    words = [*WORDS, " caf\u00e9", "\U0001f600", "\U0001f603", "\n"]
    events = invented_run(5, 40, 192, words)
    samples = fold(events).samples
    assert len(samples) > MAX_ROWS
    page = open_run(events, reduced_motion="reduce")
    texts = page.locator("#texts tbody td:last-child")
    expect(texts).to_have_count(MAX_ROWS)
    more = page.get_by_role("button", name=f"All {len(samples)} texts")
    more.focus()
    page.keyboard.press("Enter")
    expect(texts).to_have_count(len(samples))
    expect(more).to_have_count(0)
    expect(page.locator("#texts .table-box")).to_be_focused()
    assert texts.all_text_contents() == [visible(sample.text) for sample in samples]


def test_the_threshold_can_be_moved_and_set_back(open_run: OpenPage) -> None:
    events = bundled("coins")
    page = open_run(events, reduced_motion="reduce")
    board, slider = page.locator(".eab"), page.get_by_label("What if? Threshold (nats)")
    for threshold in (0.71, 0.1):
        slider.fill(str(threshold))
        what_if = fold(resimulate(events, threshold).events)
        words = tree_change_sentence(fold(events), what_if)
        expect(board.get_by_text(f"Recomputed from the recording. {words}")).to_be_visible()
    page.get_by_role("button", name="Reset: back to the recorded run").click()
    expect(board.get_by_text("Recomputed from the recording.")).to_have_count(0)
    page.get_by_label("Growth step r").select_option("1")
    expect(board.get_by_text("r = 1 allocates")).to_be_visible()


def test_without_javascript_the_page_says_that_it_needs_it(open_run: OpenPage) -> None:
    page = open_run(STORY, java_script_enabled=False)
    expect(page.get_by_text("needs JavaScript, but no network")).to_be_visible()


# The lines in the boxes of the tree, by path.
LABELS = """() => Object.fromEntries(
  [...document.querySelectorAll("svg.tree .box.path:not(.hidden)")].map((box) => [
    box.dataset.path, [...box.querySelectorAll(".label tspan")].map((line) => line.textContent),
  ]),
)"""


def words_of(text: str) -> list[str]:
    """The words of a text; lines are broken at spaces and after line breaks."""
    return re.split(r"\s+|(?<=↵)(?=[^↵\s])", text.strip())


@pytest.mark.parametrize("name", ["bridge", "pet", "recipe"])
def test_eight_texts_can_be_read_on_a_small_screen(open_run: OpenPage, name: str) -> None:
    """Of their characters, 90% are shown (75% where texts of 48 tokens have several forks), and no
    word is cut.
    """
    events = bundled(name)
    run = fold(events)
    page = open_run(events, reduced_motion="reduce")
    page.set_viewport_size({"width": 1366, "height": 768})
    page.locator(".eab").focus()
    page.keyboard.press("End")
    cursor_is(page, len(run.steps) - 1)
    shown = {int(path): lines for path, lines in page.evaluate(LABELS).items()}
    assert sum(not run.paths[path].children for path in shown) >= 7
    texts = {
        path: visible("".join(token.text for token in run.paths[path].tokens if not token.special))
        for path in shown
    }
    seen = sum(len("".join(lines).replace("…", "").replace(" ", "")) for lines in shown.values())
    share = 0.75 if name == "recipe" else 0.9
    assert seen >= share * sum(len(text.replace(" ", "")) for text in texts.values())
    for path, lines in shown.items():
        words = {word for line in lines for word in words_of(line)} - {"…"}
        assert words <= set(words_of(texts[path]))


def test_the_story_model_runs_on_the_page(open_run: OpenPage) -> None:
    page = open_run(STORY, live=True, reduced_motion="reduce")
    paths = len(fold(STORY).paths)
    expect(page.locator(f".eab[data-paths='{paths}']")).to_be_visible()
    page.get_by_role("textbox", name="Prompt").fill("One day, a little frog wanted")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("#title")).to_have_text("One day, a little frog wanted")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled(timeout=60_000)
    assert int(page.locator(".eab").get_attribute("data-paths") or 0) > 1
    page.get_by_label("What if? Threshold (nats)").fill("9")
    expect(page.get_by_text("0 forks, 1 path").first).to_be_visible()
    page.get_by_role("button", name="Recorded run:").click()
    expect(page.locator("#title")).to_have_text("Once upon a time")
    expect(page.locator(f".eab[data-paths='{paths}']")).to_be_visible()
