"""Suggestions after a run that shows little: each suggestion, once applied, solves the problem."""

from dataclasses import replace
from pathlib import Path

import pytest
from invented_runs import invented_run
from page_walk import opened

from app.server.suggestions import expected_paths, suggestion
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.events import RunEnded
from eab.formatting import counted
from eab.lessons import bundled_runs
from eab.models.huggingface import HuggingFaceModel
from eab.run import fold

QUIET = BranchingConfig(entropy_threshold=6.0, max_new_tokens=12)


def test_the_suggested_threshold_makes_the_same_prompt_fork(embedded: HuggingFaceModel) -> None:
    events = list(event_stream(embedded, Request("Once upon a time", QUIET)))
    assert [path.status for path in fold(events).paths] == ["finished"]
    found = suggestion(events)
    assert found is not None
    lower = replace(QUIET, entropy_threshold=found.widgets["threshold_nats"])
    assert f"{lower.entropy_threshold:.2f} nats" in found.label
    assert any(
        path.status == "forked"
        for path in fold(event_stream(embedded, Request("Once upon a time", lower))).paths
    )


def test_an_early_path_limit_suggests_a_higher_threshold(embedded: HuggingFaceModel) -> None:
    """At the suggested threshold, the limit acts early in fewer than half of these runs."""
    busy = BranchingConfig(
        entropy_threshold=0.3,
        max_paths=8,
        branch_factor=2,
        max_new_tokens=30,
        temperature=0.5,
        top_p=0.9,
    )
    early = still = 0
    for prompt in ("The king asked the old wizard what", "Two birds sat on a wall."):
        for seed in range(2):
            request = Request(prompt, replace(busy, seed=seed))
            found = suggestion(list(event_stream(embedded, request)))
            if found is None:
                continue
            early += 1
            value = found.widgets["threshold_nats"]
            assert set(found.widgets) == {"threshold_unit", "threshold_nats"}
            assert value > busy.entropy_threshold
            assert found.label.startswith(f"Fork above {value:.2f} nats: ")
            higher = replace(request.config, entropy_threshold=value)
            run = list(event_stream(embedded, Request(prompt, higher)))
            still += suggestion(run) is not None
            assert len(fold(run).leaves()) > 1
    assert early >= 4
    assert still < early / 2


def test_expected_paths_of_a_run_that_never_forks_and_of_one_that_always_forks() -> None:
    run = fold(invented_run(5, 20, 8))
    tokens = [token.entropy for path in run.paths for token in path.tokens]
    assert expected_paths(run, max(tokens) + 1, 20) == 1
    assert expected_paths(run, 0.0, 3) == pytest.approx(run.started.config.branch_factor**3)
    assert expected_paths(run, 0.0, 100_000) > 256  # and no overflow


def test_a_suggestion_whose_tree_is_known_exactly_needs_no_run(embedded: HuggingFaceModel) -> None:
    # The path limit acts, but nothing that it changed remains at a higher threshold.
    config = BranchingConfig(entropy_threshold=0.3, max_paths=2, branch_factor=2, max_new_tokens=30)
    known = 0
    for seed in (16, 18, 28):
        at = replace(config, seed=seed)
        events = list(event_stream(embedded, Request("Two birds sat on a wall.", at)))
        found = suggestion(events)
        if found is None:
            continue
        assert (found.what_if is None) == ("about" in found.label)
        if found.what_if is None:
            continue
        known += 1
        higher = replace(at, entropy_threshold=found.what_if)
        run = fold(event_stream(embedded, Request("Two birds sat on a wall.", higher)))
        assert found.label.endswith(counted(len(run.leaves()), "text"))
    assert known == 2


def test_nothing_is_suggested_if_the_path_limit_acts_late(embedded: HuggingFaceModel) -> None:
    calm = BranchingConfig(entropy_threshold=3.0, max_paths=6, branch_factor=2, max_new_tokens=30)
    late = 0
    for seed in range(3):
        events = list(event_stream(embedded, Request("Once upon a time", replace(calm, seed=seed))))
        run = fold(events)
        limited = [step for path in run.paths for step in path.limited_steps]
        if limited and min(limited) * 3 >= len(run.steps):
            late += 1
            assert suggestion(events) is None
    assert late > 1


def test_fewer_paths_or_tokens_are_suggested_if_memory_ran_out() -> None:
    for paths, widgets in ((8, {"max_paths": 4}), (1, {"max_new_tokens": 10})):
        failed = [*invented_run(5, 20, paths)[:-1], RunEnded(19, "failed", "too much")]
        found = suggestion(failed)
        assert found is not None
        assert found.widgets == widgets


@pytest.mark.parametrize(
    "recording", bundled_runs.recordings(), ids=lambda recording: recording.file
)
def test_unfinished_runs_have_no_suggestion(recording: bundled_runs.Recording) -> None:
    assert suggestion(bundled_runs.events_of(recording)[:-1]) is None


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
