"""A finished run at another threshold or r: what the board is sent, the results, and the reset.

In a browser, the board's threshold line and its list send the request (see
tests/browser/test_what_if_and_diff.py). Here, the request is put into the session.
"""

import base64
import gzip
import json

import pytest
from made_runs import bundled
from page_walk import Tab, opened

from app.state.what_if import WhatIfSettings
from eab.board.messages import deciding_forks
from eab.config import AllocationStep
from eab.engine.what_if.resimulate import resimulate
from eab.run import fold
from eab.run.record.run_file import decode

EVENTS = bundled("market")


@pytest.fixture
def page() -> Tab:
    return opened().open_example("market")


def ask(
    page: Tab, threshold: float | None, r: AllocationStep | None = None, name: str = "market"
) -> Tab:
    return page.remember(what_if=WhatIfSettings(f"recorded-{name}.eab", threshold, r))


def test_the_board_gets_the_events_and_the_results_are_of_the_recomputed_run(page: Tab) -> None:
    before = page.board
    after = ask(page, 1.0).board
    recomputed = fold(resimulate(EVENTS, 1.0).events)
    assert {name: after[name] for name in before} == before, "the board has the recorded run"
    deciding = json.loads(json.dumps(deciding_forks(recomputed)))
    assert after["asked"] == {"threshold": 1.0, "r": None, "deciding": deciding}
    events = json.loads(gzip.decompress(base64.b64decode(after["recorded"])))
    assert [decode(json.dumps(event).encode()) for event in events] == list(EVENTS)
    [texts] = page.table
    assert len(texts.value) == len(recomputed.samples) < len(fold(EVENTS).samples)
    assert page.remember(what_if=None).board == before


def test_a_run_that_cannot_be_recomputed_stays(page: Tab) -> None:
    before = page.open_example("original").board
    after = ask(page, 0.9, name="original").board
    assert after["asked"] == {"threshold": 0.9, "r": None}
    assert after["paths"] == before["paths"]
    [texts] = page.table
    assert len(texts.value) == len(fold(bundled("original")).samples)


def test_a_request_about_another_run_changes_nothing(page: Tab) -> None:
    before = page.board
    assert ask(page, 0.9, name="count").board == before
