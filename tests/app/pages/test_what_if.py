"""The sliders under the prompt: a finished run at another threshold or r, its results, and the way
back.
"""

import pytest
from page_walk import told
from places import MAIN
from streamlit.testing.v1 import AppTest

from app.server import bundled_runs
from eab.events import RowsAllocated
from eab.run import fold
from eab.what_if.resimulate import resimulate

MARKET = next(one for one in bundled_runs.recordings() if one.file == "market.eab")


@pytest.fixture
def page() -> AppTest:
    shown = AppTest.from_file(MAIN, default_timeout=60).run()
    return shown.selectbox(key="recording").set_value(MARKET).run()


def said(page: AppTest) -> str:
    """What stands under the sliders."""
    values = [caption.value for caption in page.main.caption]
    return next(value for value in values if value.startswith(("Read again", "As recorded")))


def set_threshold(page: AppTest, nats: float) -> AppTest:
    return page.slider(key="again_threshold_recorded-market.eab").set_value(nats).run()


def test_a_higher_threshold_prunes_the_tree_at_once_and_as_it_was_brings_it_back(
    page: AppTest,
) -> None:
    before = told(page)
    set_threshold(page, 1.0)
    assert not page.exception
    after = told(page)
    assert (
        len(after["paths"])
        == len(fold(resimulate(bundled_runs.events_of(MARKET), 1.0).events).paths)
        < len(before["paths"])
    )
    assert (after["run"], after["threshold"], after["unknowns"]) == (before["run"], 1.0, [])
    assert "Exact" in said(page)
    assert "Most likely of 5 texts" in page.text[0].value, "the results are of what is shown"
    next(button for button in page.button if button.label == "As it was").click().run()
    assert told(page) == before
    assert "As recorded" in said(page)


def test_a_lower_threshold_marks_and_offers_a_run(page: AppTest) -> None:
    recording = next(one for one in bundled_runs.recordings() if one.file == "road.eab")
    page.selectbox(key="recording").set_value(recording).run()
    page.slider(key="again_threshold_recorded-road.eab").set_value(0.05).run()
    assert told(page)["unknowns"]
    assert "it would fork, which the recorded run did not" in said(page)
    next(button for button in page.button if button.label == "Take it for a run").click().run()
    assert page.slider(key="set_threshold_nats").value == 0.05


def test_another_r_tells_rows_and_bytes_as_computed(page: AppTest) -> None:
    page.select_slider(key="again_r_recorded-market.eab").set_value(1).run()
    assert not page.exception
    words = said(page).replace("\\", "")
    growths = [
        event
        for event in resimulate(bundled_runs.events_of(MARKET), r=1).events
        if isinstance(event, RowsAllocated)
    ]
    assert f"r = 1 allocates {len(growths)} times" in words
    assert "(computed). As recorded: r = 16" in words
    assert "(computed)" in told(page)["sentences"]["memory"]


def test_the_original_policy_keeps_its_threshold(page: AppTest) -> None:
    recording = next(one for one in bundled_runs.recordings() if one.file == "original.eab")
    page.selectbox(key="recording").set_value(recording).run()
    assert page.slider(key="again_threshold_recorded-original.eab").disabled
