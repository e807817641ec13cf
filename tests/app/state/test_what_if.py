"""Suggestions after a run that shows little: each suggestion, once applied, solves the problem."""

from dataclasses import replace
from pathlib import Path

import pytest
from invented_runs import invented_run
from page_walk import opened

from app.server import rules
from app.server.rules import PUBLIC
from app.state.what_if import suggestion
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.request import Request
from eab.lessons import bundled_runs
from eab.run import fold
from eab.run.events import RunEnded

QUIET = BranchingConfig(entropy_threshold=6.0, max_new_tokens=12)


def test_the_suggested_threshold_makes_the_same_prompt_fork(embedded: HuggingFaceModel) -> None:
    events = list(event_stream(embedded, Request("Once upon a time", QUIET)))
    assert [path.status for path in fold(events).paths] == ["finished"]
    found = suggestion(fold(events))
    assert found is not None
    lower = replace(QUIET, entropy_threshold=found.widgets["threshold_nats"])
    assert f"{lower.entropy_threshold:.2f} nats" in found.label
    assert any(
        path.status == "forked"
        for path in fold(event_stream(embedded, Request("Once upon a time", lower))).paths
    )


def test_an_early_path_limit_suggests_more_paths(
    embedded: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = BranchingConfig(entropy_threshold=0.3, max_paths=8, branch_factor=2, max_new_tokens=30)
    run = fold(event_stream(embedded, Request("Two birds sat on a wall.", busy)))
    found = suggestion(run)
    assert found is not None
    assert (found.label, found.widgets) == ("Run with 16 paths", {"max_paths": 16})
    assert found.why.startswith("Path limit reached at step ")
    few = replace(PUBLIC, max_paths=8)
    monkeypatch.setattr(rules, "current", lambda: few)
    assert suggestion(run) is None, "the server allows no more"


def test_nothing_is_suggested_if_the_path_limit_acts_late(embedded: HuggingFaceModel) -> None:
    calm = BranchingConfig(entropy_threshold=3.0, max_paths=6, branch_factor=2, max_new_tokens=30)
    late = 0
    for seed in range(3):
        events = list(event_stream(embedded, Request("Once upon a time", replace(calm, seed=seed))))
        run = fold(events)
        limited = [step for path in run.paths for step in path.limited_steps]
        if limited and min(limited) * 3 >= len(run.steps):
            late += 1
            assert suggestion(run) is None
    assert late > 1


def test_fewer_paths_or_tokens_are_suggested_if_memory_ran_out() -> None:
    for paths, widgets in ((8, {"max_paths": 4}), (1, {"max_new_tokens": 10})):
        failed = [*invented_run(5, 20, paths)[:-1], RunEnded(19, "failed", "too much")]
        found = suggestion(fold(failed))
        assert found is not None
        assert found.widgets == widgets


@pytest.mark.parametrize(
    "recording", bundled_runs.recordings(), ids=lambda recording: recording.file
)
def test_unfinished_runs_have_no_suggestion(recording: bundled_runs.Recording) -> None:
    assert suggestion(fold(bundled_runs.events_of(recording)[:-1])) is None


def test_the_button_sets_the_threshold_and_starts_the_run() -> None:
    page = opened().put(prompt="My pet is a").put(set_threshold_nats=4.0)
    page.generate(set_max_new_tokens=12)
    assert any("No fork" in caption.value for caption in page.caption)
    page.press("suggestion")
    assert page.value("set_threshold_nats") < 4.0
    page.run_to_its_end()
    assert not any("No fork" in caption.value for caption in page.caption)


def test_without_the_model_the_page_replays_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("app.server.model_cache.ASSETS", tmp_path)
    page = opened(example="bridge.eab")
    assert page.button(key="run_button").disabled
    assert "Replay only" in page.sidebar.info[0].value
    assert page.boards
