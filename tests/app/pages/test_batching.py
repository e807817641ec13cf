"""The page Batching without a browser: the recorded comparison, a new one, Stop, errors, Now."""

import time

import pandas as pd
import pytest
from page_walk import opened, run_to_its_end, start, words
from streamlit.testing.v1 import AppTest

from app.server.workloads import CLASS, PRESETS
from app.state.process import worker
from app.widgets.request_editor import requests
from eab.analysis.kv_allocation import kv_allocation
from eab.errors import ConfigError
from eab.figures.kv_allocation import allocation_sentence
from eab.figures.serving_now import NOTHING_SERVED
from eab.labs.batching.results import MAX_REPEATS, WAYS, Asked
from eab.labs.batching.sentences import (
    headline,
    way_sentences,
)
from eab.lessons import bundled_runs


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """Its equal requests are shorter than those that it offers, so that serving them is quick."""
    short = tuple(one._replace(new_tokens=8) for one in PRESETS["All equal"])
    monkeypatch.setitem(PRESETS, "All equal", short)
    return opened("batching")


def measure(page: AppTest, preset: str = "All equal") -> AppTest:
    """Measure this set once per way."""
    page.selectbox(key="batching_preset").set_value(preset)
    page.select_slider(key="batching_repeats").set_value(1)
    return page.button(key="batching_start").click().run()


def captions(page: AppTest) -> str:
    return " ".join(caption.value for caption in page.main.caption)


def test_the_first_visit_shows_the_recorded_comparison(page: AppTest) -> None:
    assert not page.exception
    assert not page.error
    recorded = bundled_runs.batching()
    assert words(page)[0] == headline(recorded)
    for sentence in way_sentences(recorded).values():
        assert sentence in words(page)
    assert len(page.get("plotly_chart")) == 2  # the three ways, and the allocation of KV memory
    assert list(page.table[0].value.columns) == list(WAYS)
    assert "Recorded: embedded, float32, on " in captions(page)


def test_the_recorded_comparison_shows_what_batching_is_about() -> None:
    recorded = bundled_runs.batching()
    assert recorded.complete
    assert recorded.workload.requests == PRESETS[CLASS]
    assert recorded.workload.repeats == MAX_REPEATS == len(recorded.schedules("continuous"))
    assert recorded.differing == 0
    passes = [len(recorded.shown()[way].passes) for way in WAYS]
    assert passes == sorted(passes)
    assert passes[0] < 0.6 * passes[1]
    assert recorded.shown()["continuous"].awaited_idle_share == 0
    assert recorded.shown()["static batches"].awaited_idle_share > 0.5
    assert sum(file.stat().st_size for file in bundled_runs.BATCHING.iterdir()) < 300_000


def test_seconds_instead_of_passes(page: AppTest) -> None:
    page.segmented_control(key="batching_axis").set_value("Seconds").run()
    assert not page.exception
    assert words(page)[0] == headline(bundled_runs.batching())


def test_measure_serves_the_requests_here_and_a_reload_finds_that(page: AppTest) -> None:
    run_to_its_end(measure(page), "batching_stop")
    assert not page.exception
    assert not page.error
    assert words(page)[0].startswith("8 requests in 4 slots: continuous batching took 16 passes")
    assert "Measured here: embedded" in captions(page)
    assert any("no time is lost" in text for text in words(page))
    reloaded = opened("batching", batching=str(page.query_params["batching"]))
    assert words(reloaded) == words(page)
    assert "Measured here" in captions(reloaded)


def test_other_requests_than_the_picture_shows_are_pointed_out(page: AppTest) -> None:
    other = "The chart shows other requests, slots or paths."
    assert other not in captions(page)
    page.select_slider(key="batching_repeats").set_value(1).run()
    assert other not in captions(page)
    page.selectbox(key="batching_slots").set_value(2).run()
    assert other in captions(page)
    page.selectbox(key="batching_slots").set_value(4).run()
    page.selectbox(key="batching_preset").set_value("All equal").run()
    assert other in captions(page)
    page.selectbox(key="batching_slots").set_value(8)
    run_to_its_end(measure(page), "batching_stop")
    assert other not in captions(page)
    assert words(page)[0].startswith("8 requests in 8 slots: continuous batching took 8 passes")
    assert any("no time is lost" in text for text in words(page))


def test_stop_leaves_the_recorded_one(page: AppTest) -> None:
    before = words(page)
    page.select_slider(key="batching_repeats").set_value(9)
    page.button(key="batching_start").click().run()
    assert not page.button(key="batching_stop").disabled
    assert page.button(key="batching_start").disabled
    page.button(key="batching_stop").click().run()
    run_to_its_end(page, "batching_stop")
    assert not page.exception
    assert words(page) == before
    assert any("Stopped after 0 servings" in one.value for one in page.caption)


def test_a_model_that_cannot_be_loaded_is_explained(page: AppTest) -> None:
    before = words(page)
    page.segmented_control(key="set_model_kind").set_value("Other").run()
    page.text_input(key="set_model_other").set_value("./no_such_folder").run()
    run_to_its_end(measure(page), "batching_stop")
    assert "there is no such folder" in page.error[0].value
    assert words(page) == before


@pytest.mark.parametrize("row", [(None, 8), ("a", None)])
def test_a_row_that_is_not_complete_is_explained(row: tuple[object, object]) -> None:
    table = pd.DataFrame([("a", 8), row], columns=["prompt", "new_tokens"])
    with pytest.raises(ConfigError, match="request 2 is incomplete; give a prompt"):
        requests(table)
    assert requests(table[:1]) == (Asked("a", 8),)


def test_now_says_what_to_do_while_nothing_is_served() -> None:
    page = opened("batching", view="now")
    assert not page.exception
    assert NOTHING_SERVED in words(page)
    assert [metric.value for metric in page.metric] == ["0", "0", "0", "0 B"]
    assert len(page.get("plotly_chart")) == 1


def test_now_shows_a_run_in_progress_without_its_prompt_and_is_idle_after_it() -> None:
    explore = opened("explore")
    start(explore, "Once upon a time, there was a secret", 256)
    page = opened("batching", view="now")
    deadline = time.monotonic() + 60
    while page.metric[0].value != "1":
        assert time.monotonic() < deadline
        page.run()
    assert any(text.startswith("1 run is in the batch, 0 wait; ") for text in words(page))
    figure = ""
    while "run " not in figure:  # the picture is drawn once a second for all tabs
        assert time.monotonic() < deadline
        figure = page.run().get("plotly_chart")[0].proto.spec
    assert "secret" not in figure
    explore.button(key="stop_button").click().run()
    run_to_its_end(explore)
    page.run()
    assert NOTHING_SERVED in words(page)


def test_whoever_runs_finds_the_own_run_by_its_number() -> None:
    page = opened("explore")
    start(page, "Once upon a time", 256)
    page.session_state["batching_view"] = "Now"
    page.switch_page("../pages/batching.py").run()
    deadline = time.monotonic() + 60
    while not any("Yours is run " in text for text in words(page)):
        assert time.monotonic() < deadline
        page.run()
    for live in worker().remembered:
        live.stop()


def test_the_kv_memory_is_that_of_the_continuous_batch(page: AppTest) -> None:
    """The tree's bytes are computed from the runs, those of the schedule from its passes."""
    recorded = bundled_runs.batching()
    schedule = recorded.shown()["continuous"]
    begins = schedule.first_token_passes()
    found = kv_allocation(recorded.runs, begins=[begins[number] for number in sorted(begins)])
    held = [step.total for step in found.steps["tree"]]
    assert held == [one.kv_bytes for one in schedule.passes]
    assert allocation_sentence(found) in words(page)
