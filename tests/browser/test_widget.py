"""The notebook's widget in a real Chromium: its module in a bare page, with a model as anywidget
gives it.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from insisting import OpenPage
from invented_runs import WORDS, invented_run
from playwright.sync_api import Browser, Page, expect

from eab.board import bundle
from eab.board.messages import Feed
from eab.events import StepTimed
from eab.run import RunState, fold

pytestmark = [pytest.mark.browser, pytest.mark.slow]
STORY = invented_run(5, 20, 8)
HOSTILE = [
    "<script>document.title='broken'</script>",
    "<img src=x onerror=alert(1)>",
    "\u202e",
    "\n",
]
_HOST = """async ([code, css, values]) => {
  document.head.append(Object.assign(document.createElement("style"), { textContent: css }));
  const listeners = {};
  window.sent = [];
  window.model = {
    get: (name) => values[name],
    on: (name, listener) => (listeners[name] ??= new Set()).add(listener),
    off: (name, listener) => listeners[name].delete(listener),
    send: (content) => sent.push(content),
  };
  window.change = (name, value) => {
    values[name] = value;
    for (const listener of listeners["change:" + name] ?? []) listener();
  };
  window.listening = () => Object.values(listeners).reduce((sum, found) => sum + found.size, 0);
  const module = await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  const el = document.createElement("div");
  window.leave = module.default.render({ model, el }); // in the page a little later, as in JupyterLab
  await new Promise(requestAnimationFrame);
  document.getElementById("cell").append(el);
}"""


@pytest.fixture
def cell(browser: Browser) -> Iterator[OpenPage]:
    """An output cell with a widget of these values; afterwards there was no error."""
    contexts, problems = [], []

    def cell(
        run: RunState,
        mode: Any = "replay",
        status: str = "",
        running: bool = False,
        style: str = "",
    ) -> Page:
        context = browser.new_context(
            viewport={"width": 1100, "height": 900}, reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.set_content(f'<title>calm</title><body style="{style}"><div id="cell"></div></body>')
        values = {
            "message": Feed().message(run, "notebook", mode),
            "status": status,
            "running": running,
        }
        page.evaluate(_HOST, [bundle.javascript("widget"), bundle.stylesheet(), values])
        expect(page.locator(".eab")).to_be_visible()
        return page

    yield cell
    for context in contexts:
        context.close()
    assert problems == []


def cursor_is(page: Page, step: int) -> None:
    expect(page.locator(".eab")).to_have_attribute("data-cursor", str(step))


def test_a_replay_scrubs_and_inspects_and_has_no_stop(cell: OpenPage) -> None:
    page = cell(fold(STORY))
    cursor_is(page, 19)
    expect(page.get_by_role("button", name="End the run")).to_be_hidden()
    page.locator(".eab").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    cursor_is(page, 1)
    page.keyboard.press("ArrowDown")
    expect(page.locator(".inspector .candidates li")).to_have_count(4)
    assert page.locator("[data-lm-suppress-shortcuts=true] .eab").count() == 1


def test_a_live_run_grows_and_can_be_stopped(cell: OpenPage) -> None:
    run, feed = RunState(STORY[0]), Feed()
    half = 1 + [type(one) is StepTimed and one.step == 9 for one in STORY].index(True)
    for event in STORY[1:half]:
        run.apply(event)
    page = cell(run, "live", "Step 10 of 20", running=True)
    feed.message(run, "notebook", "live")
    expect(page.locator(".eab .status")).to_have_text("Step 10 of 20")
    cursor_is(page, 9)
    page.get_by_role("button", name="End the run").click()
    assert page.evaluate("sent") == [{"request": "stop"}]
    for event in STORY[half:]:
        run.apply(event)
    message = feed.message(run, "notebook", "live")
    assert message["since_step"] > 0
    page.evaluate(
        "([message]) => { change('message', message); change('running', false); }", [message]
    )
    cursor_is(page, 19)
    expect(page.get_by_role("button", name="End the run")).to_be_hidden()
    page.evaluate("leave()")
    expect(page.locator(".eab")).to_have_count(0)
    assert page.evaluate("listening()") == 0


def test_a_board_that_opens_late_asks_for_everything(cell: OpenPage) -> None:
    page = cell(fold(STORY))
    late = Feed(key="notebook", steps=[15]).message(fold(STORY), "notebook", "live") | {
        "run": "another"
    }
    page.evaluate("([message]) => change('message', message)", [late])
    assert page.evaluate("sent") == [{"request": "keyframe"}]


def test_hostile_text_stays_text(cell: OpenPage) -> None:
    page = cell(fold(invented_run(3, 12, 4, WORDS + HOSTILE)))
    page.locator(".eab").focus()
    page.keyboard.press("ArrowDown")
    assert page.title() == "calm"
    assert page.locator(".eab script, .eab img").count() == 0


def test_it_takes_the_colours_of_jupyter(cell: OpenPage) -> None:
    page = cell(
        fold(STORY),
        style="--jp-content-font-color1:#fff;--jp-layout-color0:#111;--jp-layout-color2:#424242",
    )
    expect(page.locator("svg.memory rect.shared").first).to_have_css("fill", "rgb(86, 180, 233)")
    expect(page.locator(".tree-panel")).to_have_css("background-color", "rgb(66, 66, 66)")
