"""A finished run at another threshold or r: the message to the board, the results, and the reset.

In a browser, the board's threshold line and its list send the request (see
tests/browser/test_what_if_and_diff.py). Here, the request is put into the session.
"""

import pytest
from made_runs import bundled
from page_walk import Tab, opened

from app.state.what_if import WhatIfSettings
from eab.config import AllocationStep
from eab.events import RowsAllocated
from eab.figures.memory_captions import memory_sentence
from eab.run import fold
from eab.what_if.resimulate import resimulate

EVENTS = bundled("market")
RECORDED = fold(EVENTS).started


@pytest.fixture
def page() -> Tab:
    return opened().open_example("market")


def ask(
    page: Tab, threshold: float | None, r: AllocationStep | None = None, name: str = "market"
) -> Tab:
    step = RECORDED.config.r if r is None else r
    return page.remember(what_if=WhatIfSettings(f"recorded-{name}.eab", threshold, step))


def test_a_higher_threshold_prunes_the_tree_and_reset_restores_it(page: Tab) -> None:
    before = page.board
    after = ask(page, 1.0).board
    recomputed = fold(resimulate(EVENTS, 1.0).events)
    assert len(after["paths"]) == len(recomputed.paths) < len(before["paths"])
    assert (after["run"], after["threshold"], after["unknowns"]) == (before["run"], 1.0, [])
    assert after["notes"]["entropy"].startswith("Recomputed from the recording.")
    assert "Exact" in after["notes"]["entropy"]
    slider = "The slider at the side is the threshold of the next run."
    assert after["notes"]["entropy"].endswith(slider)
    [texts] = page.table
    assert len(texts.value) == len(recomputed.samples), "the results are of the displayed run"
    assert ask(page, None).board == before
    assert slider not in ask(page, None, 1).board["notes"]["entropy"]


def test_a_lower_threshold_marks_forks_that_only_a_new_run_could_show(page: Tab) -> None:
    message = ask(page.open_example("count"), 0.05, name="count").board
    assert message["unknowns"]
    assert "would fork too, so this is an approximation" in message["notes"]["entropy"]


def test_another_r_shows_rows_and_bytes_as_computed(page: Tab) -> None:
    message = ask(page, None, 1).board
    events = resimulate(EVENTS, r=1).events
    growths = [event for event in events if isinstance(event, RowsAllocated)]
    assert f"r = 1 allocates {len(growths)} times" in message["notes"]["memory"]
    assert f"As recorded: r = {RECORDED.config.r}" in message["notes"]["memory"]
    assert message["sentences"]["memory"] == memory_sentence(fold(events))


def test_a_run_that_cannot_be_recomputed_is_explained_and_stays(page: Tab) -> None:
    before = page.open_example("original").board
    after = ask(page, 0.9, name="original").board
    assert after["notes"]["entropy"].startswith("The run cannot be recomputed")
    assert after["paths"] == before["paths"]


def test_a_request_about_another_run_changes_nothing(page: Tab) -> None:
    before = page.board
    assert ask(page, 0.9, name="count").board == before
