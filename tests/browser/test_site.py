"""The site in a real Chromium: from the disk and from a web server, with nothing behind it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from axe import KEPT, grave_findings
from browser_steps import OpenPage
from made_runs import bundled, bundled_run
from playwright.sync_api import Page, expect
from static_files import serving_files

from eab.engine.what_if.resimulate import resimulate
from eab.figures.captions import tree_sentence
from eab.figures.run_comparison import tree_change_sentence
from eab.run import fold
from eab.run.record.run_file import encode
from eab.share.site import WORKER, write_site

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# Sends the events of a recorded run one by one, until it is stopped.
SCRIPTED = """
const events = %s;
let stopped = false;
onmessage = async ({ data: { type, prompt, id } }) => {
  if (type === "stop") return (stopped = true);
  stopped = false;
  if (prompt === "fail") return postMessage({ type: "error", message: "the weights are damaged", id });
  postMessage({ type: "progress", loaded: 1, total: 2 });
  if (prompt === "load for ever") return;
  for (const event of events) {
    const now = stopped ? { event: "RunEnded", step: 1, reason: "stopped" } : event;
    postMessage({ type: "events", events: [now], id });
    if (stopped) return;
    await new Promise((resolve) => setTimeout(resolve, prompt === "slow" ? 20 : 0));
  }
};
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site")
    write_site(made)
    lines = [encode(event).decode() for event in bundled("coins")]
    (made / WORKER).write_text(SCRIPTED % f"[{','.join(lines)}]", encoding="utf-8")
    return made


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    """The address of the site on a web server."""
    with serving_files(folder) as (address, _):
        yield address


def opened(page: Page, address: str) -> list[str]:
    """Open an address and wait for a tree; returns the list of all requests."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    page.wait_for_function("() => Number(document.querySelector('.eab')?.dataset.paths) > 0")
    return asked


def shows(page: Page, name: str) -> None:
    expect(page.locator(".eab").get_by_text(tree_sentence(bundled_run(name))).first).to_be_visible()


@pytest.mark.parametrize("kind", ["disk", "server"])
def test_the_recorded_runs_need_no_further_request(
    new_page: OpenPage, folder: Path, address: str, kind: str
) -> None:
    page = new_page(reduced_motion="reduce")
    start = (folder / "index.html").as_uri() if kind == "disk" else f"{address}/index.html"
    asked = opened(page, start)
    page.get_by_role("link", name="Three coins").click()
    shows(page, "coins")
    assert page.title() == bundled_run("coins").started.prompt.replace("\n", "↵")
    page.get_by_label("What if? Threshold (nats)").fill("0.71")
    what_if = fold(resimulate(bundled("coins"), 0.71).events)
    words = tree_change_sentence(bundled_run("coins"), what_if)
    expect(page.get_by_text(f"Recomputed from the recording. {words}")).to_be_visible()
    if kind == "disk":
        expect(page.get_by_role("status").get_by_text("comes from a web server")).to_be_visible()
    assert asked == [start]
    if kind == "server":
        assert page.url == f"{address}/index.html?run=coins"
        page.go_back()
        shows(page, "cake")


def test_a_link_opens_its_run_and_a_wrong_one_is_explained(
    new_page: OpenPage, folder: Path
) -> None:
    page = new_page()
    opened(page, f"{(folder / 'index.html').as_uri()}?run=wording")
    expect(page.locator("#gallery a[aria-current]")).to_contain_text("A fork in words")
    opened(page, f"{(folder / 'index.html').as_uri()}?run=nothing")
    expect(page.get_by_text("There is no recorded run “nothing”")).to_be_visible()


@pytest.mark.parametrize("width", [390, 1366])
def test_the_pages_are_accessible_and_fit(new_page: OpenPage, folder: Path, width: int) -> None:
    page = new_page(width, 844, reduced_motion="reduce")
    for name in ("index", "lessons/kv-cache", "techniques/growth"):
        page.goto((folder / f"{name}.html").as_uri())
        page.wait_for_timeout(300)
        assert grave_findings(page, KEPT) == [], name
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_run_of_the_story_model_grows_and_can_be_dragged(
    new_page: OpenPage, address: str
) -> None:
    page = new_page(reduced_motion="reduce")
    opened(page, f"{address}/index.html")
    page.get_by_role("textbox", name="Prompt").fill("Toss three coins")
    page.get_by_role("button", name="Run", exact=True).click()
    shows(page, "coins")
    expect(page.locator("#title")).to_have_text(bundled_run("coins").started.prompt)
    page.get_by_label("What if? Threshold (nats)").fill("0.71")
    expect(page.get_by_text("At 0.71 nats: 0 forks, 1 path")).to_be_visible()


def test_a_run_that_has_not_begun_leaves_the_board_as_it_is(
    new_page: OpenPage, address: str
) -> None:
    page = new_page(reduced_motion="reduce")
    opened(page, f"{address}/index.html")
    title = page.locator("#title").inner_text()
    prompt = page.get_by_role("textbox", name="Prompt")
    run = page.get_by_role("button", name="Run", exact=True)
    page.route("**/worker.js", lambda route: route.abort())
    prompt.fill("load for ever")
    run.click()
    expect(page.get_by_text("could not load its script")).to_be_visible()
    page.unroute("**/worker.js")
    run.click()
    expect(page.get_by_text("Loading the story model: 1 B of 2 B")).to_be_visible()
    page.get_by_role("button", name="Stop: Stop after this step and keep the result").click()
    expect(page.get_by_text("Stopped before the first token.")).to_be_visible()
    assert page.locator("#title").inner_text() == title
    prompt.fill("Toss three coins")
    run.click()
    shows(page, "coins")


def test_a_run_of_the_story_model_can_be_stopped_or_fail(new_page: OpenPage, address: str) -> None:
    page = new_page(reduced_motion="reduce")
    opened(page, f"{address}/index.html")
    page.get_by_role("textbox", name="Prompt").fill("slow")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("button", name="Stop: Stop after this step and keep the result").click()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    page.get_by_role("textbox", name="Prompt").fill("fail")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("The weights are damaged.")).to_be_visible()
    page.get_by_role("textbox", name="Prompt").fill("slow")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("link", name="Who ate the cake").click()
    shows(page, "cake")
    page.wait_for_timeout(500)
    shows(page, "cake")
