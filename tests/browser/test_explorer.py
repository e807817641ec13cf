"""The Explore page in a real Chromium: first visit, live run, Stop, themes.
The board alone is tested in test_board_page.py.
"""

import re

import pytest
from browser_steps import OpenPage
from made_runs import bundled, bundled_run
from playwright.sync_api import Locator, Page, expect

from eab.lessons import bundled_runs
from eab.run import record

pytestmark = pytest.mark.browser


def board(page: Page) -> Locator:
    return page.locator(".eab")


def number(page: Page, name: str) -> int:
    return int(board(page).get_attribute(f"data-{name}") or -1)


def wait_for_board(page: Page) -> None:
    expect(page.locator(".eab .box.path").first).to_be_visible()


def run(page: Page) -> None:
    before = page.url
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_function("before => location.href !== before", arg=before)  # it has started


def wait_for_end(page: Page) -> None:
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_visible()


def test_the_first_visit_plays_a_run_in_the_system_theme(open_page: OpenPage) -> None:
    page = open_page(color_scheme="dark")
    wait_for_board(page)
    expect(board(page)).to_contain_class("dark")
    first = number(page, "cursor")
    page.wait_for_function(f"before => Number({_CURSOR}) > before", arg=first)


def test_a_live_run_grows_until_it_is_stopped_and_the_board_is_not_replaced(
    open_page: OpenPage,
) -> None:
    # Many texts, many tokens and no cache: on a slow machine, too, the run is not over before it is stopped.
    settings = "policy=independent&max_paths=64&max_new_tokens=490&cache=recompute"
    page = open_page(f"?prompt=Once+upon+a+time,+there+was+a+dog&{settings}")
    wait_for_board(page)
    run(page)
    page.wait_for_function(f"() => {_TEXT}.includes('a dog')")
    board(page).evaluate(
        "root => { root.mine = true; root.querySelector('svg.tree').mine = true; }"
    )
    seen: set[int] = set()
    while len(seen) < 4:  # the run grows step by step
        seen.add(number(page, "cursor"))
        page.wait_for_timeout(100)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stopped after").first).to_be_visible()
    assert max(seen) <= number(page, "cursor") < 480
    assert number(page, "paths") > 1
    assert board(page).evaluate("root => root.mine && root.querySelector('svg.tree').mine")
    expect(page.get_by_role("tab", name="Texts")).to_be_visible()


@pytest.mark.slow
def test_a_run_grows_from_a_forced_token(open_page: OpenPage) -> None:
    page = open_page("?example=market.eab", reduced_motion="reduce")
    wait_for_board(page)
    recorded = bundled_run("market")
    path, index = next(
        (path, index)
        for path in recorded.paths
        for index, token in enumerate(path.tokens)
        if index and len(token.candidates) > 1
    )
    board(page).evaluate(
        "(root, [path, index]) => root.getRootNode().__board.send('select', path, index)",
        [path.id, index],
    )
    page.locator(".eab .inspector .candidates button").nth(1).click()
    board(page).evaluate("root => { root.mine = true; }")
    forced = path.tokens[index].candidates[1].text
    page.get_by_role("button", name=f"Grow from here with “{forced}”").click()
    grown = page.locator(".eab .box.side-b")
    expect(grown.first).to_contain_text(forced.strip())
    wait_for_end(page)
    expect(page.locator(".eab .box.side-a").first).to_be_visible()
    tables = page.get_by_role("button", name="Tables")
    tables.click()
    expect(page.get_by_text("Paths at step").first).to_be_visible()
    expect(page.get_by_text("KV cache at step")).to_have_count(0)
    tables.click()
    page.get_by_role("button", name="In its tree").click()
    expect(grown).to_have_count(0)
    expect(page.locator(".eab .box.prompt")).to_have_attribute(
        "aria-label", re.compile(re.escape(forced.strip()))
    )
    assert board(page).evaluate("root => root.mine")
    assert not page.get_by_role("alert").count()
    page.get_by_role("tab", name="Export").click()
    expect(page.get_by_text("continued=(")).to_be_visible()
    page.get_by_role("button", name="Back", exact=True).click()
    expect(page.locator(".eab .box.prompt")).to_have_attribute(
        "aria-label", re.compile(re.escape(recorded.started.prompt) + r"\W*$")
    )
    expect(page.get_by_text(bundled_runs.named("market.eab").title).first).to_be_visible()
    expect(page.get_by_text("continued=(")).to_have_count(0)


@pytest.mark.slow
def test_advanced_stays_open_during_a_run_and_on_other_pages(open_page: OpenPage) -> None:
    page = open_page("/?model=embedded&max_new_tokens=6")
    page.get_by_text("Advanced", exact=True).click()
    inside = page.get_by_role("combobox", name="Weights")
    expect(inside).to_be_visible()
    run(page)
    wait_for_end(page)
    expect(inside).to_be_visible()
    page.get_by_role("link", name="Memory").first.click()
    expect(page.get_by_role("heading", name="What does a KV cache save?")).to_be_visible()
    page.get_by_role("link", name="Explore").first.click()
    expect(inside).to_be_visible()


@pytest.mark.slow
def test_a_downloaded_file_contains_the_run(open_page: OpenPage) -> None:
    page = open_page()
    wait_for_board(page)
    page.get_by_role("tab", name="Export").click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Run file").click()
    saved = record.load(waiting.value.path())
    assert saved == bundled("bridge")


# The board is in the component's shadow root, where functions of the page have to look for it.
_ROOT = "[...document.querySelectorAll('*')].map(e => e.shadowRoot).find(r => r && r.querySelector('.eab'))"
_CURSOR = f"({_ROOT})?.querySelector('.eab').dataset.cursor"
_TEXT = f"(({_ROOT})?.querySelector('.eab').textContent ?? '')"
