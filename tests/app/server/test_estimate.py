"""The estimate before a run: an upper bound on its tokens, and seconds only from measurements."""

import re

import pytest
from cells import cell, plan
from hypothesis import given
from hypothesis import strategies as st
from page_walk import Tab, opened

from app.server import admission
from app.server.admission import QueuePosition, position_in, seconds_until_start
from app.server.live_run import LiveRun, LiveTask
from eab.config import BranchingConfig
from eab.engine.branching.presets import START
from eab.engine.job import Job, run_job
from eab.engine.request import Request
from eab.labs.tuning.grid import Cell, Grid
from eab.labs.tuning.prompt_sets import Question, TuningPrompt
from eab.labs.tuning.report import TuningReport, sweep_began
from eab.labs.tuning.sweeping import items_of
from eab.run import RunFold
from eab.run.events import RunEnded


def timed(model: str, max_paths: int, turns: int, seconds: float) -> LiveTask[RunFold]:
    task = LiveTask(run_job("a prompt", BranchingConfig(max_paths=max_paths), model))
    task.turns, task.seconds = turns, seconds
    return task


def test_there_are_no_seconds_without_a_measurement_of_this_model() -> None:
    config = BranchingConfig(max_paths=16, max_new_tokens=48)
    assert admission.most_tokens(config) == 768
    assert admission.seconds(config, "embedded", []) is None
    assert admission.seconds(config, "embedded", [timed("gpt2", 16, 10, 1.0)]) is None
    assert admission.seconds(config, "embedded", [timed("embedded", 16, 0, 0.0)]) is None


def test_the_pace_comes_from_the_newest_run_with_the_nearest_path_limit() -> None:
    config = BranchingConfig(max_paths=16, max_new_tokens=50)
    earlier = [
        timed("embedded", 12, 10, 1.0),
        timed("embedded", 20, 10, 2.0),
        timed("embedded", 64, 10, 9.0),
    ]
    assert admission.seconds(config, "embedded", earlier) == 10.0


def test_sweeps_are_estimated_from_the_newest_sweep_of_the_model_per_run_and_token() -> None:
    config = BranchingConfig(max_new_tokens=10)

    def swept(model: str, runs: int, seconds: float, known: int = 0) -> LiveTask[TuningReport]:
        asked = (Request("a prompt", config),)
        task = LiveTask(Job("sweep", model, TuningReport(), lambda _: iter(()), asked))
        task.apply(sweep_began(model, "float32", "a machine", plan(2 * runs or 1), known))
        for seed in range(runs):
            task.apply(cell(0.3, seed, settings={"max_new_tokens": 10}, seconds=seconds))
            task.apply(cell(0.9, seed, made="resimulated", seconds=None))
        task.apply(RunEnded(0, "finished"))
        return task

    earlier = [swept("embedded", 4, 9.0), swept("embedded", 4, 0.5), swept("gpt2", 4, 5.0)]
    timed = admission.timed_cells("embedded", earlier)
    assert [one.seconds for one in timed] == [0.5] * 4
    assert admission.timed_cells("other", [*earlier, swept("other", 0, 0.0)]) == []
    grid = Grid({"entropy_threshold": (0.3, 0.9)}, BranchingConfig(max_new_tokens=20), (1, 2, 3))
    resumed = swept("embedded", 4, 7.0, known=6)
    assert [one.seconds for one in admission.timed_cells("embedded", [resumed])] == [7.0]
    items = items_of([TuningPrompt("a", Question("a prompt", (), {}, ""))], grid)
    assert admission.sweep_seconds(items, timed) == pytest.approx(1.2 * 3 * 20 * 0.5 / 10)
    assert admission.sweep_seconds(items, []) is None


def test_the_pace_of_a_sweep_comes_from_the_nearest_path_limit_and_the_same_policy() -> None:
    def timed(policy: str, max_paths: int, seconds: float) -> Cell:
        settings = {"policy": policy, "max_paths": max_paths, "max_new_tokens": 10}
        return cell(0.3, 1, settings=settings, seconds=seconds)

    cells = [timed("fair", 4, 1.0), timed("fair", 16, 2.0), timed("independent", 12, 7.0)]
    base = BranchingConfig(max_paths=12, max_new_tokens=10)
    items = items_of([TuningPrompt("a", Question("a prompt", (), {}, ""))], Grid({}, base))
    assert admission.sweep_seconds(items, cells) == pytest.approx(1.2 * 2.0)


def test_no_run_makes_more_tokens_than_the_bound_that_the_page_shows() -> None:
    page = opened()
    page.generate(prompt="The cat sat on the", set_max_new_tokens=3)
    most = 3 * START.max_paths
    assert re.search(rf"at most {most} tokens, about \d+ s", _sentence(page))
    message = page.session_state["past_runs"][0].run
    assert sum(len(path.tokens) for path in message.paths) <= most


def _sentence(page: Tab) -> str:
    return next(one.value for one in page.sidebar.caption if one.value.startswith("Run: "))


def run(owner: str, max_turns: int = 10, turns: int = 0, seconds: float = 0.0) -> LiveRun:
    """A run as the queue sees it; `begin` is never called."""
    job = Job("run", "embedded", RunFold(), lambda _: iter(()), max_turns=max_turns)
    live = LiveRun(job, owner)
    live.turns, live.seconds = turns, seconds
    return live


def test_there_is_no_estimate_before_anything_was_measured() -> None:
    others, own = [run("b")], run("c")
    assert position_in([*others, own], own, [run("a")], 1) == QueuePosition(2, 2, None)


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
)
def test_the_estimated_wait_equals_that_of_a_simulation(
    left: list[int], max_turns: list[int]
) -> None:
    max_running = len(left)
    running = [run("r", max_turns=2 + count, turns=2, seconds=0.5) for count in left]
    waiting = [run(str(number), count) for number, count in enumerate(max_turns)]
    for place in range(len(waiting)):
        estimate = seconds_until_start(waiting[: place + 1], running, max_running)
        assert estimate == pytest.approx(
            0.25 * _rounds_before(list(left), list(max_turns[: place + 1]), max_running)
        )


def _rounds_before(active: list[int], queue: list[int], max_running: int) -> int:
    """The simulated number of shared passes until the last run in the queue starts."""
    rounds = 0
    while True:
        while len(active) < max_running:
            active.append(queue.pop(0))
            if not queue:
                return rounds
        rounds += 1
        active = [left - 1 for left in active if left > 1]
