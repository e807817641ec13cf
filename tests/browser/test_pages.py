"""Every page in a real Chromium, in both themes and at all sizes: a calm opening, axe, contrast, no
cut words, no emoji glyphs. Then the pointer and the layout on single pages. What the pages compute is tested
without a browser, in tests/app/pages.
"""

import csv
import re
from itertools import cycle, pairwise
from pathlib import Path

import contrast
import pytest
from axe import KEPT, grave_findings
from browser_steps import OpenPage, box_of, until_attached
from page_faults import cut_words, empty_boxes, unreachable, walked
from playwright.sync_api import Locator, Page, expect

from app.widgets.elements import FOLDER
from eab.labs.bmc import EXPERIMENTS
from eab.lessons import bundled_runs

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SECONDS = 1000  # in Playwright's milliseconds
SIZES = [(1366, 768), (1024, 768), (768, 1024), (390, 844), (360, 740)]
PICTURES = ".js-plotly-plot .nsewdrag, .eab svg.tree, .chips .text"
TICKS = ".js-plotly-plot :is(.xtick, .ytick) text"
# Pages, with an element that is on them once they are drawn.
PAGES = {
    "compare": ".eab .box.path",
    "memory": TICKS,
    "bmc": TICKS,
    "speculative": TICKS,
    "batching": TICKS,
    "batching?view=now": "text=seconds from the last pass",
    "quantization": TICKS,
    "tune": TICKS,
    "tune?view=threshold": ".st-key-tune_pilot_stop",
    "tune?view=worth": TICKS,
    "learn": ".stMain h1",
    "learn?lesson=forks&stage=1": ".st-key-lesson_reveal",
    "learn?lesson=forks&stage=2": ".st-key-lesson_picture .eab .box.path",
    "learn?lesson=batching&stage=2": f".st-key-lesson_picture {TICKS}",
}
# The largest sum of shifts at most 1 s apart within 5 s, as browsers define the score of a page.
SHIFTS = """() => new Promise((done) => {
  let [score, sum, first, last] = [0, 0, -Infinity, -Infinity];
  new PerformanceObserver((list) => {
    for (const { startTime, value, hadRecentInput } of list.getEntries()) {
      if (hadRecentInput) continue;
      if (startTime - last > 1000 || startTime - first > 5000) [sum, first] = [0, startTime];
      sum += value;
      last = startTime;
      score = Math.max(score, sum);
    }
  }).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(score), 100);
})"""
# Emoji, whose colours and sizes vary between systems. `#`, `*` and digits count as text.
EMOJI = """() => { WALK
  const own = (node) => [...node.childNodes].filter((one) => one.nodeType === 3);
  const words = everything(document.body).filter((node) => !node.closest("script, style"))
    .flatMap(own).map((one) => one.data).join(" ");
  return [...words].filter((one) => /\\p{Emoji}/u.test(one) && !/[#*0-9©®]/.test(one));
}"""


# Waits until nothing on the page, in shadow roots too, has changed for 0.4 s.
CALM = """() => new Promise((done) => { WALK
  const roots = [document, ...everything(document).flatMap((node) => node.shadowRoot ?? [])];
  const end = () => { changes.disconnect(); done(); };
  let timer = setTimeout(end, 400);
  const changes = new MutationObserver(() => { clearTimeout(timer); timer = setTimeout(end, 400); });
  const what = { subtree: true, childList: true, attributes: true, characterData: true };
  for (const root of roots) changes.observe(root, what);
  setTimeout(end, 5000);
})"""


def settled(page: Page) -> None:
    walked(page, CALM)
    expect(page.locator("[data-test-script-state=notRunning]")).to_be_visible()


def opened(
    open_page: OpenPage, query: str, width: int = 1366, height: int = 768, scheme: str = "light"
) -> Page:
    """Open a page without motion, and wait until it is drawn."""
    page = open_page(f"/{query}", color_scheme=scheme, reduced_motion="reduce")
    drawn = PAGES.get(query, TICKS)
    expect(page.locator(drawn).last).to_be_attached()
    settled(page)
    assert page.evaluate(SHIFTS) <= 0.1
    page.set_viewport_size({"width": width, "height": height})
    settled(page)
    return page


def expect_no_faint_words_or_marks(page: Page) -> None:
    found = contrast.words(page)
    assert len(found) > 30
    assert contrast.faint(found) == []
    assert contrast.faint(contrast.marks(page)) == []


@pytest.mark.parametrize("query", PAGES)
def test_a_page_opens_calmly_is_accessible_in_both_themes_and_fits_the_screen(
    open_page: OpenPage, query: str
) -> None:
    page = opened(open_page, query, scheme="dark")
    if "?" not in query and query != "learn":  # Learn opens on a picture to look at
        downloads = page.locator("[data-testid=stDownloadButton]")
        expect(downloads.last).to_be_visible()
    expect(page.locator("h1")).to_have_count(1)
    has_lines = "js-plotly" in PAGES[query] and query != "tune"  # which opens on a heat map
    assert grave_findings(page, KEPT) == []
    expect_no_faint_words_or_marks(page)
    assert contrast.marks(page) or not has_lines
    assert walked(page, EMOJI) == []
    page.emulate_media(color_scheme="light")
    page.reload()
    expect(page.locator(PAGES[query]).last).to_be_attached()
    settled(page)
    assert grave_findings(page, KEPT) == []
    expect_no_faint_words_or_marks(page)
    expect_to_fit_all_sizes(page)


def expect_to_fit_all_sizes(page: Page) -> None:
    """Expect the first picture on the first screen, and at no size a cut word, an empty box, or a
    control that cannot be reached, in a closed sidebar either.
    """
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        settled(page)
        if width == 1366 and (pictures := page.locator(PICTURES)).count():
            assert box_of(pictures.first)["y"] < 640
        for part in ("document.documentElement", "document.querySelector('.stMain')"):
            assert page.evaluate(f"{part}.scrollWidth") <= width
        assert cut_words(page) == [], width
        assert empty_boxes(page) == 0, width
        assert unreachable(page) == [], width
        if (opens := page.get_by_test_id("stExpandSidebarButton")).is_visible():
            opens.click()
            settled(page)
            assert unreachable(page, ".stSidebar") == [], width
            page.locator(".stSidebar").hover()
            page.get_by_test_id("stSidebarCollapseButton").locator("button").click()


def test_controls_that_cannot_be_reached_are_found(new_page: OpenPage) -> None:
    page = new_page()
    page.set_content(
        """<style>a { position: absolute; top: 9px; width: 50px }</style>
        <a href=x style="left: -9px">out</a> <a href=x style="left: 99px">below</a>
        <a href=x style="left: 120px">above</a> <a href=x style="left: 300px">covered</a>
        <p style="position: absolute; left: 290px; top: 9px; margin: 0; width: 90px">text</p>"""
    )
    found = " ".join(unreachable(page))
    assert all(
        words in found
        for words in ("outside: A “out”", "“below” over A “above”", "covered: A “covered”")
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_explore_is_accessible(open_page: OpenPage, scheme: str) -> None:
    page = open_page(color_scheme=scheme, reduced_motion="reduce")
    board = page.locator(".eab")
    expect(page.locator(".eab .box.path").first).to_be_visible()
    expect(page.get_by_role("tab", name="Texts")).to_be_visible()
    assert page.evaluate(SHIFTS) <= 0.1
    if scheme == "light":
        expect_to_fit_all_sizes(page)
    page.set_viewport_size({"width": 1366, "height": 768})
    settled(page)
    assert grave_findings(page) == []
    assert walked(page, EMOJI) == []
    for keys, seen in (
        ("ArrowDown ArrowDown", ".inspector li"),
        ("t", ".table-box tbody tr"),
        ("End ?", ".help"),
        ("/", ".finder"),
    ):
        for key in keys.split():
            board.press(key)
        expect(page.locator(f".eab {seen}").first).to_be_visible()
        assert grave_findings(page) == [], seen
        expect_no_faint_words_or_marks(page)
    ticks = {mark.name for mark in contrast.marks(page) if "tick" in mark.name}
    assert len(ticks) >= 2
    page.get_by_role("tab", name="Answers").click()
    expect(page.locator(TICKS).last).to_be_attached()
    expect_no_faint_words_or_marks(page)


def bottom(drawn: Locator) -> float:
    box = box_of(drawn)
    return box["y"] + box["height"]


# Batching, Compare, Tune


@pytest.mark.parametrize("query", ["batching", "compare", "tune"])
def test_on_a_phone_the_answer_comes_first_and_the_controls_on_request(
    open_page: OpenPage, query: str
) -> None:
    page = opened(open_page, query)
    page.set_viewport_size({"width": 390, "height": 844})
    settled(page)
    chart = page.locator(".js-plotly-plot .nsewdrag, .eab .outline").first
    assert box_of(chart)["y"] < 600
    control = page.locator(".st-key-page_controls").get_by_role("combobox").first
    expect(control).to_be_hidden()
    page.get_by_text("Show the controls").click()
    expect(control).to_be_visible()
    assert unreachable(page) == []
    page.set_viewport_size({"width": 1366, "height": 768})
    expect(page.get_by_text("Show the controls")).to_be_hidden()
    expect(control).to_be_visible()


# Batching


def test_batching_fits_its_first_screen_and_one_cursor_spans_its_chart(open_page: OpenPage) -> None:
    page = opened(open_page, "batching")
    expect(page.get_by_text("10 requests in 4 slots: continuous batching took")).to_be_visible()
    one_by_one = page.locator(".annotation-text", has_text="One by one")
    assert box_of(one_by_one)["y"] < 768, "the slots of both other ways end above it"
    plot = page.locator(".js-plotly-plot .nsewdrag").first
    line, places = page.locator(".js-plotly-plot .spikeline").first, cycle((300, 320))
    until_attached(lambda: plot.hover(position={"x": next(places), "y": 30}, force=True), line)
    drawn = page.locator(".js-plotly-plot .spikeline").evaluate_all(
        "lines => Math.max(...lines.map((line) => line.getBoundingClientRect().height))"
    )
    assert drawn > 400


def test_edited_requests_are_measured_and_downloaded(open_page: OpenPage, tmp_path: Path) -> None:
    page = opened(open_page, "batching")
    for name, option in (("Requests", "All equal"), ("Slots", "8")):
        page.get_by_role("combobox", name=name).click()
        page.get_by_role("option", name=option, exact=True).click()
    page.get_by_text("Edit requests").click()
    table = page.get_by_test_id("stDataFrame")
    page.wait_for_timeout(1 * SECONDS)  # it replaces the table of the previous set
    settled(page)
    expect(table).to_have_count(1)
    page.get_by_role("slider", name="Repeats per way").press("Home")
    settled(page)
    grid = box_of(table)
    table.click(position={"x": grid["width"] - 60, "y": 52})  # the number in the first row
    page.keyboard.type("4")
    page.wait_for_timeout(1 * SECONDS)  # the cell opens
    page.keyboard.press("Enter")
    page.wait_for_timeout(1 * SECONDS)  # the edit is sent after a delay
    page.get_by_role("button", name="Measure", exact=True).click()
    expect(page.get_by_text("8 requests in 8 slots: continuous batching took 32")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Requests (CSV)").click()
    rows = list(csv.DictReader(download.value.path().read_text().splitlines()))
    assert [row["new_tokens"] for row in rows] == ["4", *["32"] * 7] * 3
    assert all(float(row["ended_s"]) >= float(row["first_token_s"]) for row in rows)


# BMC


def test_axis_labels_do_not_overlap_and_no_point_lies_outside_the_axes(open_page: OpenPage) -> None:
    page = open_page("/bmc")
    for name in EXPERIMENTS:
        page.goto(re.sub("/bmc.*", f"/bmc?experiment={name}", page.url))
        chart = page.locator("[role=tabpanel] .js-plotly-plot").first
        expect(chart.locator(".ytick text").first).to_be_visible()
        places = sorted(box_of(label)["y"] for label in chart.locator(".ytick text").all())
        assert len(places) >= 3
        assert min(upper - lower for lower, upper in pairwise(places)) > 10
        assert chart.locator(".scatterlayer .point").evaluate_all(_OUTSIDE) == 0


_OUTSIDE = """
points => points.filter(point => {
  const box = point.getBoundingClientRect();
  const plot = point.closest('.js-plotly-plot').querySelector('.nsewdrag').getBoundingClientRect();
  const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
  return x < plot.left - 1 || x > plot.right + 1 || y < plot.top - 1 || y > plot.bottom + 1;
}).length
"""


def test_the_answer_is_below_its_button_and_the_formula_is_rendered(
    open_page: OpenPage,
) -> None:
    page = opened(open_page, "bmc?experiment=sizes")
    button = page.get_by_role("button", name="Measure", exact=True)
    sentence = page.get_by_text("Overhead at the predicted r*")
    assert 0 < box_of(sentence)["y"] - box_of(button)["y"] < 200
    page.get_by_text("The cost model", exact=True).click()
    expect(page.locator(".katex-display")).to_have_count(1)
    expect(page.locator(".katex-error")).to_have_count(0)
    expect(page.locator(".katex-display .katex-html").first).to_contain_text("r∗")


# Memory


def test_charts_can_be_white_for_print_and_downloaded(open_page: OpenPage) -> None:
    page = opened(open_page, "memory", scheme="dark")
    page.get_by_text("White background, for print").click()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.js-plotly-plot .main-svg')]"
        ".filter(svg => svg.style.background === 'white' || svg.style.background === 'rgb(255, 255, 255)').length === 3"
    )
    page.locator(".js-plotly-plot").first.hover(force=True)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download plot").first.click()
    assert waiting.value.suggested_filename.endswith(".svg")
    assert waiting.value.path().read_text(encoding="utf-8").startswith("<svg")


# Speculative decoding


def test_chips_follow_the_draft_length_escape_text_and_have_signs_besides_colour(
    open_page: OpenPage,
) -> None:
    page = opened(open_page, "speculative")
    accepted = page.locator(".chips .text .accepted")
    expect(accepted.first).to_be_visible()
    few = accepted.count()
    page.get_by_role("radiogroup", name="Draft length").get_by_text("8 draft tokens").click()
    expect(accepted).not_to_have_count(few)
    chips = [
        {"kind": "own", "text": "<img src=x onerror=alert(1)>"},
        {"kind": "rejected", "text": " $x$ **bold**"},
        {"kind": "accepted", "text": "مرحبا"},
    ]
    page.evaluate(
        """async ([code, chips]) => {
          const module = await import(URL.createObjectURL(new Blob([code], { type: "text/javascript"
          }))); const host = document.body.appendChild(document.createElement("div"));
          host.id = "alone";
          module.default({ data: { chips }, parentElement: host });
          module.default({ data: { chips }, parentElement: host });  // sent twice, drawn once
        }""",
        [(FOLDER / "chips.js").read_text(encoding="utf-8"), chips],
    )
    shown = page.locator("#alone .text .chip")
    expect(shown).to_have_count(3)
    expect(shown.nth(0)).to_have_text("<img␣src=x␣onerror=alert(1)>")
    expect(shown.nth(1)).to_have_text("×␣$x$␣**bold** (rejected draft token, replaced by the next)")
    expect(shown.nth(2)).to_have_text("✓مرحبا (accepted draft token)")
    assert page.locator("#alone img").count() == 0


# Tune


def test_tune_fits_its_first_screen_and_a_click_selects_a_tile(open_page: OpenPage) -> None:
    page = opened(open_page, "tune")
    for name in (
        "other settings are not measurably worse",
        "Error of the answer distribution with",
    ):
        assert bottom(page.get_by_text(name).first) < 400
    assert bottom(page.locator(".js-plotly-plot .nsewdrag")) < 768
    configs = [cell.config for cell in bundled_runs.tuning().cells]
    thresholds = [one.entropy_threshold for one in configs]
    limits = [one.max_paths for one in configs]
    setting = page.get_by_role("combobox", name="Setting (or click it in the chart)")
    # The last tile first: the first is already selected, and a click on it cannot be waited for.
    for choose, tile in ((max, "last"), (min, "first")):
        page.locator("[data-test-script-state=notRunning]").wait_for()
        place = box_of(getattr(page.locator(".js-plotly-plot").first.locator(".point"), tile))
        page.mouse.click(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
        named = f"entropy threshold {choose(thresholds):g}, .*max paths {choose(limits)}, "
        expect(setting).to_have_value(re.compile(named))


def test_the_selected_options_on_tune_can_be_read_in_full(open_page: OpenPage) -> None:
    page = opened(open_page, "tune", width=1024)
    expect(page.get_by_text("Probability seen").first).to_be_visible()
    boxes = page.locator(".stMain .stSelectbox input")
    expect(boxes).to_have_count(6)
    for box in boxes.all():
        wide, room = box.evaluate("one => [one.scrollWidth, one.clientWidth]")
        assert wide <= room, box.input_value()
