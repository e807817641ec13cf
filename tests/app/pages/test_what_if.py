"""The what-if sliders: a finished run at another threshold or r, its results, and the way back."""

import pytest
from page_walk import board_message
from places import MAIN
from streamlit.testing.v1 import AppTest

from app.server import bundled_runs
from eab.events import RowsAllocated
from eab.run import fold
from eab.what_if.resimulate import resimulate

RECOMPUTED, HINT = "Recomputed from the recording", "Drag the dashed line"
MARKET = next(one for one in bundled_runs.recordings() if one.file == "market.eab")


@pytest.fixture
def page() -> AppTest:
    opened = AppTest.from_file(MAIN, default_timeout=60).run()
    return opened.selectbox(key="recording").set_value(MARKET).run()


def sentences(page: AppTest) -> str:
    """The text under the sliders."""
    values = [caption.value for caption in page.main.caption]
    return next(value for value in values if value.startswith((RECOMPUTED, HINT)))


def set_threshold(page: AppTest, nats: float) -> AppTest:
    return page.slider(key="what_if_threshold_recorded-market.eab").set_value(nats).run()


def test_a_higher_threshold_prunes_the_tree_at_once_and_reset_brings_it_back(
    page: AppTest,
) -> None:
    before = board_message(page)
    set_threshold(page, 1.0)
    assert not page.exception
    after = board_message(page)
    assert (
        len(after["paths"])
        == len(fold(resimulate(bundled_runs.events_of(MARKET), 1.0).events).paths)
        < len(before["paths"])
    )
    assert (after["run"], after["threshold"], after["unknowns"]) == (before["run"], 1.0, [])
    assert "Exact" in sentences(page)
    assert "Most likely of 5 texts" in page.text[0].value, (
        "the results are those of the displayed run"
    )
    next(button for button in page.button if button.label == "Reset").click().run()
    assert board_message(page) == before
    assert sentences(page).startswith(HINT)


def test_a_lower_threshold_marks_and_offers_a_run(page: AppTest) -> None:
    recording = next(one for one in bundled_runs.recordings() if one.file == "road.eab")
    page.selectbox(key="recording").set_value(recording).run()
    page.slider(key="what_if_threshold_recorded-road.eab").set_value(0.05).run()
    assert board_message(page)["unknowns"]
    assert "would fork too, so this is an approximation" in sentences(page)
    next(button for button in page.button if button.label == "Use this threshold").click().run()
    assert page.slider(key="set_threshold_nats").value == 0.05


def test_another_r_shows_rows_and_bytes_as_computed(page: AppTest) -> None:
    page.select_slider(key="what_if_r_recorded-market.eab").set_value(1).run()
    assert not page.exception
    words = sentences(page).replace("\\", "")
    growths = [
        event
        for event in resimulate(bundled_runs.events_of(MARKET), r=1).events
        if isinstance(event, RowsAllocated)
    ]
    assert f"r = 1 allocates {len(growths)} times" in words
    assert "(computed). As recorded: r = 16" in words
    assert "(computed)" in board_message(page)["sentences"]["memory"]


def test_the_original_policy_keeps_its_threshold(page: AppTest) -> None:
    recording = next(one for one in bundled_runs.recordings() if one.file == "original.eab")
    page.selectbox(key="recording").set_value(recording).run()
    assert page.slider(key="what_if_threshold_recorded-original.eab").disabled


def test_a_slider_that_lost_its_key_falls_back_to_what_was_recorded(page: AppTest) -> None:
    """A late poll can make Streamlit drop a widget's key; the browser then sends the default."""
    set_threshold(page, 1.0)
    recorded = bundled_runs.events_of(MARKET)[0]
    threshold = page.slider(key="what_if_threshold_recorded-market.eab")
    r = page.select_slider(key="what_if_r_recorded-market.eab")
    assert threshold.proto.default == [round(recorded.threshold_nats, 2)]  # type: ignore[union-attr]
    assert r.options[int(r.proto.default[0])] == str(recorded.config.r)  # type: ignore[union-attr]
