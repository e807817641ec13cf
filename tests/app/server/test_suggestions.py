"""Suggestions after a run that shows little: each of them, applied, solves its problem."""

from dataclasses import replace
from pathlib import Path

import pytest
from invented_runs import invented_run
from page_walk import boards, run_to_its_end
from places import MAIN
from streamlit.testing.v1 import AppTest

from app.server.suggestions import suggestions
from eab.config import BranchingConfig
from eab.engine.loop import generate
from eab.engine.request import Request
from eab.events import RunEnded
from eab.lessons import bundled_runs
from eab.models.huggingface import HuggingFaceModel
from eab.run import fold

QUIET = BranchingConfig(entropy_threshold=6.0, max_new_tokens=12)


def test_the_threshold_offered_makes_the_same_prompt_fork(embedded: HuggingFaceModel) -> None:
    run = fold(generate(embedded, Request("Once upon a time", QUIET)))
    assert [path.status for path in run.paths] == ["finished"]
    [suggestion] = suggestions(run)
    lower = replace(QUIET, entropy_threshold=suggestion.widgets["threshold_nats"])
    assert f"{lower.entropy_threshold:.2f} nats" in suggestion.label
    assert any(
        path.status == "forked"
        for path in fold(generate(embedded, Request("Once upon a time", lower))).paths
    )


def test_more_paths_where_the_limit_acts_at_once() -> None:
    run = fold(invented_run(5, 20, 8))
    assert suggestions(run) == []
    run.paths[0].limited_steps.append(2)
    [suggestion] = suggestions(run)
    assert suggestion.widgets == {"max_paths": 16}
    run.paths[0].limited_steps[:] = [15]
    assert suggestions(run) == []


def test_less_of_both_where_memory_ran_out() -> None:
    events = invented_run(5, 20, 8)
    run = fold([*events[:-1], RunEnded(19, "failed", "too much")])
    assert [suggestion.widgets for suggestion in suggestions(run)] == [
        {"max_paths": 4},
        {"max_new_tokens": 10},
    ]


@pytest.mark.parametrize(
    "recording", bundled_runs.recordings(), ids=lambda recording: recording.file
)
def test_bundled_runs_have_at_most_one_suggestion_and_unfinished_ones_none(
    recording: bundled_runs.Recording,
) -> None:
    events = bundled_runs.events_of(recording)
    assert len(suggestions(fold(events))) <= 1
    assert suggestions(fold(events[:-1])) == []


def test_the_button_sets_the_threshold_and_runs() -> None:
    page = AppTest.from_file(MAIN, default_timeout=30).run()
    page.text_area(key="prompt").set_value("My pet is a").run()
    page.slider(key="set_threshold_nats").set_value(4.0).run()
    page.slider(key="set_max_new_tokens").set_value(12)
    page.button(key="run_button").click().run()
    run_to_its_end(page)
    assert any("No fork" in caption.value for caption in page.caption)
    page.button(key="suggestion").click().run()
    assert page.slider(key="set_threshold_nats").value < 4.0
    run_to_its_end(page)
    assert not page.exception
    assert not any("No fork" in caption.value for caption in page.caption)


def test_without_the_model_the_page_replays_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("app.server.model_cache.ASSETS", tmp_path)
    page = AppTest.from_file(MAIN, default_timeout=30).run()
    assert not page.exception
    assert page.button(key="run_button").disabled
    assert "Replay only" in page.sidebar.info[0].value
    assert boards(page)
