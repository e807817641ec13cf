"""A finished run at another threshold or r: what the board is sent, its results, and the way back.

The board asks by its threshold line and its list (tests/browser/test_what_if_and_diff.py); here,
what it asks for is put into the session.
"""

import re

import pytest
from page_walk import board_message, open_example, run_to_its_end, start
from places import MAIN
from streamlit.testing.v1 import AppTest

from app.state.what_if import Asked
from eab.config import AllocationStep
from eab.events import RowsAllocated
from eab.figures.memory_captions import memory_sentence
from eab.formatting import counted
from eab.lessons import bundled_runs
from eab.run import fold
from eab.what_if.resimulate import resimulate

MARKET = next(one for one in bundled_runs.recordings() if one.file == "market.eab")
EVENTS = bundled_runs.events_of(MARKET)
RECORDED = fold(EVENTS).started


@pytest.fixture
def page() -> AppTest:
    opened = AppTest.from_file(MAIN, default_timeout=60).run()
    return open_example(opened, MARKET)


def ask(
    page: AppTest, threshold: float | None, r: AllocationStep | None = None, file: str = MARKET.file
) -> AppTest:
    step = RECORDED.config.r if r is None else r
    page.session_state["what_if"] = Asked(f"recorded-{file}", threshold, step)
    return page.run()


def test_a_higher_threshold_prunes_the_tree_at_once_and_reset_brings_it_back(
    page: AppTest,
) -> None:
    before = board_message(page)
    ask(page, 1.0)
    assert not page.exception
    after = board_message(page)
    recomputed = fold(resimulate(EVENTS, 1.0).events)
    assert len(after["paths"]) == len(recomputed.paths) < len(before["paths"])
    assert (after["run"], after["threshold"], after["unknowns"]) == (before["run"], 1.0, [])
    assert after["notes"]["entropy"].startswith("Recomputed from the recording.")
    assert "Exact" in after["notes"]["entropy"]
    texts = len(recomputed.leaves())
    assert f"Most likely of {texts} texts" in page.text[0].value, (
        "the results are those of the displayed run"
    )
    ask(page, None)
    assert board_message(page) == before


def test_a_lower_threshold_marks_what_only_a_run_could_tell(page: AppTest) -> None:
    recording = next(one for one in bundled_runs.recordings() if one.file == "count.eab")
    open_example(page, recording)
    ask(page, 0.05, file=recording.file)
    message = board_message(page)
    assert message["unknowns"]
    assert "would fork too, so this is an approximation" in message["notes"]["entropy"]


def test_another_r_shows_rows_and_bytes_as_computed(page: AppTest) -> None:
    ask(page, None, 1)
    assert not page.exception
    message = board_message(page)
    events = resimulate(EVENTS, r=1).events
    growths = [event for event in events if isinstance(event, RowsAllocated)]
    assert f"r = 1 allocates {len(growths)} times" in message["notes"]["memory"]
    assert f"As recorded: r = {RECORDED.config.r}" in message["notes"]["memory"]
    assert message["sentences"]["memory"] == memory_sentence(fold(events))


def test_what_cannot_be_recomputed_is_explained_and_the_run_stays(page: AppTest) -> None:
    recording = next(one for one in bundled_runs.recordings() if one.file == "original.eab")
    open_example(page, recording)
    before = board_message(page)
    ask(page, 0.9, file=recording.file)
    after = board_message(page)
    assert after["notes"]["entropy"].startswith("The run cannot be recomputed")
    assert after["paths"] == before["paths"]


def test_what_was_asked_of_another_run_changes_nothing(page: AppTest) -> None:
    before = board_message(page)
    ask(page, 0.9, file="count.eab")
    assert board_message(page) == before


def threshold_words(page: AppTest) -> str:
    drawn = next(one.proto.body for one in page.sidebar.get("html") if "Forks at" in one.proto.body)
    return re.sub("<[^>]+>", "", drawn)


def test_under_the_slider_stands_how_many_texts_a_threshold_leaves() -> None:
    page = AppTest.from_file(MAIN, default_timeout=60).run()
    page.slider(key="set_threshold_nats").set_value(1.0).run()
    page.slider(key="set_max_paths").set_value(6).run()
    run_to_its_end(start(page, "Two birds sat on a wall.", 24))
    leaves = len([path for path in board_message(page)["paths"] if path["status"] == "finished"])
    assert f"about {counted(leaves, 'text')}." in threshold_words(page)
    page.slider(key="set_threshold_nats").set_value(page.slider(key="set_threshold_nats").max).run()
    assert ": 0 of" in threshold_words(page)
    assert "about 1 text." in threshold_words(page)
    page.slider(key="set_threshold_nats").set_value(0.1).run()
    assert "about" not in threshold_words(page)  # only the model knows
