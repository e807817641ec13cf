"""The notebook widget in a real Chromium: its module in a bare page, with a model like
anywidget's.
"""

from typing import Any

import pytest
from browser_steps import OpenPage, cursor_is
from invented_runs import invented_run
from playwright.sync_api import Page, expect

from eab.board import javascript, stylesheet
from eab.board.messages import Feed
from eab.run import RunState, fold
from eab.run.events import StepTimed
from eab.share.exports import packed_events

pytestmark = [pytest.mark.browser, pytest.mark.slow]
STORY = invented_run(5, 20, 8)
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
  window.render = module.default.initialize().render;
  const el = document.createElement("div");
  window.leave = render({ model, el }); // in the page a little later, as in JupyterLab
  await new Promise(requestAnimationFrame);
  document.getElementById("cell").append(el);
}"""


@pytest.fixture
def cell(new_page: OpenPage) -> OpenPage:
    """A function that opens a page with an output cell whose widget has these values."""

    def cell(
        run: RunState,
        mode: Any = "replay",
        status: str = "",
        running: bool = False,
        style: str = "",
        **more: Any,
    ) -> Page:
        page = new_page(1100, reduced_motion="reduce")
        page.set_content(f'<title>calm</title><body style="{style}"><div id="cell"></div></body>')
        message = Feed().message(run, "notebook", mode) | more
        recorded = "" if running else packed_events(run)
        values = {"message": message, "recorded": recorded, "status": status, "running": running}
        page.evaluate(_HOST, [javascript("widget"), stylesheet(), values])
        expect(page.locator(".eab")).to_be_visible()
        return page

    return cell


def test_each_board_has_its_own_hatch_pattern(cell: OpenPage) -> None:
    page = cell(fold(STORY))
    page.evaluate(
        """async () => {
          const el = document.createElement("div");
          document.body.append(el);
          render({ model, el });
        }"""
    )
    expect(page.locator("svg.memory pattern")).to_have_count(2)
    names = page.locator("svg.memory pattern").evaluate_all("all => all.map(({ id }) => id)")
    fills = page.locator("svg.memory").evaluate_all(
        "all => all.map((one) => getComputedStyle(one.querySelector('rect.private')).fill)"
    )
    assert fills == [f'url("#{name}")' for name in names]
    assert len({*names}) == 2


@pytest.mark.parametrize(("width", "outlined"), [(1060, False), (500, True)])
def test_a_board_that_becomes_visible_late_opens_in_the_form_for_its_width(
    cell: OpenPage, width: int, outlined: bool
) -> None:
    page = cell(fold(STORY))
    page.evaluate(
        """async ([width]) => {
          const el = document.createElement("div");
          Object.assign(el.style, { display: "none", width: width + "px" });
          el.id = "late";
          document.body.append(el);
          render({ model, el });
          await new Promise((done) => setTimeout(done, 200));
          el.style.display = "";
        }""",
        [width],
    )
    seen, other = (
        (".outline-item.path", ".box.path") if outlined else (".box.path", ".outline-item")
    )
    expect(page.locator(f"#late .eab {seen}").first).to_be_visible()
    expect(page.locator(f"#late .eab {other}").first).not_to_be_visible()


def test_the_threshold_of_a_finished_run_can_be_moved_and_help_says_so(cell: OpenPage) -> None:
    page = cell(fold(STORY))
    slider = page.get_by_role("slider", name="What if? Threshold")
    page.locator(".eab").focus()
    page.keyboard.press("?")
    expect(page.locator(".help")).to_contain_text("Drag the line", use_inner_text=True)
    page.keyboard.press("?")
    slider.fill(slider.get_attribute("max") or "")
    expect(page.locator(".eab")).to_have_attribute("data-paths", "1")
    expect(page.locator(".entropy-panel")).to_contain_text("Recomputed from the recording")
    page.get_by_role("button", name="Reset").click()
    expect(page.locator(".eab")).to_have_attribute("data-paths", f"{len(fold(STORY).paths)}")
    assert page.evaluate("sent") == []  # no request to Python


def test_a_run_that_is_not_finished_cannot_be_moved(cell: OpenPage) -> None:
    page = cell(fold(STORY[:60]), "live", running=True)
    page.locator(".eab").focus()
    page.keyboard.press("?")
    expect(page.locator(".help")).to_contain_text("here it cannot", use_inner_text=True)
    expect(page.get_by_role("slider", name="What if? Threshold")).to_have_count(0)


def test_a_lesson_shows_its_run_at_another_threshold(cell: OpenPage) -> None:
    page = cell(fold(STORY), asked={"threshold": 9, "r": None})
    expect(page.locator(".eab")).to_have_attribute("data-paths", "1")
    page.get_by_role("button", name="Reset").click()
    expect(page.locator(".eab")).to_have_attribute("data-paths", f"{len(fold(STORY).paths)}")


def test_a_live_run_grows_and_can_be_stopped(cell: OpenPage) -> None:
    run, feed = RunState(STORY[0]), Feed()
    half = 1 + [type(one) is StepTimed and one.step == 9 for one in STORY].index(True)
    for event in STORY[1:half]:
        run.apply(event)
    page = cell(run, "live", "Step 10 of 20", running=True)
    feed.message(run, "notebook", "live")
    expect(page.locator(".eab .status")).to_have_text("Step 10 of 20")
    cursor_is(page, 9)
    page.get_by_role("button", name="Stop after this step").click()
    assert page.evaluate("sent") == [{"request": "stop"}]
    for event in STORY[half:]:
        run.apply(event)
    message = feed.message(run, "notebook", "live")
    assert message["since_step"] > 0
    page.evaluate(
        "([message]) => { change('message', message); change('running', false); }", [message]
    )
    cursor_is(page, 19)
    expect(page.get_by_role("button", name="Stop after this step")).to_be_hidden()
    page.evaluate("leave()")
    expect(page.locator(".eab")).to_have_count(0)
    assert page.evaluate("listening()") == 0


_NOTEBOOK = """() => {
  leave();
  window.open = (more = {}) => {
    const el = document.createElement("div");
    document.body.append(el);
    return render({ model: { ...model, ...more }, el });  // each board is given its own object
  };
  const get = (name) => (name === "message" ? { ...model.get(name) } : model.get(name));
  window.openAnotherRun = () => open({ get });
  window.stops = () => sent.filter(({ request }) => request === "stop").length;
}"""


def test_a_run_stops_when_its_last_board_is_closed(cell: OpenPage) -> None:
    page = cell(fold(STORY), "live", "Step 10 of 20", running=True)
    page.clock.install()
    page.evaluate(_NOTEBOOK)
    page.evaluate("() => { window.first = open(); window.second = open(); second(); }")
    page.clock.run_for(10_000)
    assert page.evaluate("stops()") == 0
    page.evaluate("() => { first(); window.first = open(); }")  # its cell was moved
    page.clock.run_for(10_000)
    assert page.evaluate("stops()") == 0
    page.evaluate("() => { openAnotherRun(); first(); }")
    page.clock.run_for(10_000)
    assert page.evaluate("stops()") == 1


def test_closing_a_board_of_an_ended_run_or_a_dead_kernel_does_nothing(cell: OpenPage) -> None:
    page = cell(fold(STORY), "live", "Step 10 of 20", running=True)
    page.clock.install()
    page.evaluate(_NOTEBOOK)
    page.evaluate("open()()")
    page.evaluate("change('running', false)")
    page.clock.run_for(10_000)
    assert page.evaluate("stops()") == 0
    page.evaluate("change('running', true)")
    page.evaluate(
        """() => {
          const close = open();
          sent.push = () => { throw new Error("Cannot send"); };  // as with a kernel that is gone
          close();
        }"""
    )
    page.clock.run_for(10_000)  # the fixture fails on any error


def test_a_board_that_opens_late_asks_for_everything(cell: OpenPage) -> None:
    page = cell(fold(STORY))
    late = Feed(key="notebook", begin=15).message(fold(STORY), "notebook", "live") | {
        "run": "another"
    }
    page.evaluate("([message]) => change('message', message)", [late])
    page.wait_for_function("sent.length > 0")  # it may still unpack the events
    assert page.evaluate("sent") == [{"request": "missed"}]


def test_the_board_takes_the_colours_of_the_notebook(cell: OpenPage) -> None:
    style = "--jp-content-font-color1:#fff;--jp-layout-color0:#111;--jp-layout-color2:#424242"
    page = cell(fold(STORY), style=style)
    expect(page.locator("svg.memory rect.shared").first).to_have_css("fill", "rgb(86, 180, 233)")
    expect(page.locator(".tree-panel")).to_have_css("background-color", "rgb(66, 66, 66)")
