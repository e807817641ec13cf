"""Tasks: which ones are admitted under the rules (sizes, models, limits per visitor), and the estimate
before one starts: an upper bound on its tokens, and seconds only from measurements.
"""

import re
from dataclasses import replace
from typing import Any

import pytest
from cells import cell, plan
from hypothesis import given
from hypothesis import strategies as st
from page_walk import Tab, opened

from app.server import tasks
from app.server.rules import PRIVATE, PUBLIC, Rules
from app.server.tasks import (
    Admission,
    LiveRun,
    LiveTask,
    QueuePosition,
    position_in,
    seconds_until_start,
)
from eab.config import BranchingConfig
from eab.engine.branching.presets import START
from eab.engine.job import Job, run_job
from eab.engine.request import Request
from eab.errors import LimitError
from eab.labs.tuning.grid import Cell, Grid
from eab.labs.tuning.prompt_sets import Question, TuningPrompt
from eab.labs.tuning.report import TuningReport, sweep_began
from eab.labs.tuning.sweeping import items_of
from eab.run import RunFold
from eab.run.events import RunEnded

SMALL = BranchingConfig(max_paths=4, max_new_tokens=8)


def task(
    owner: str = "a",
    model: str = "embedded",
    seconds: float = 0.0,
    configs: tuple[BranchingConfig, ...] = (SMALL,),
) -> LiveTask[Any]:
    made: LiveTask[Any] = LiveTask(
        Job("run", model, RunFold(), lambda _: iter(()), configs=configs), owner
    )
    made.seconds = seconds
    return made


def admit(admission: Admission, one: LiveTask[Any]) -> LiveTask[Any]:
    admission.admit(one)
    return one


def test_a_private_server_admits_everything():
    admission = Admission(PRIVATE)
    config = BranchingConfig(max_paths=256, max_new_tokens=4096, kv_limit_mib=1024)
    for _ in range(200):
        admission.admit(task(model="/any/folder", configs=(config,)))
    admission.check_prompt(200_000)
    assert admission.limited(config) == config


@pytest.mark.parametrize(("name", "most"), [("max_paths", 64), ("max_new_tokens", 256)])
def test_a_run_that_is_too_large_is_refused_with_an_explanation(name, most):
    Admission(PUBLIC).admit(task(configs=(replace(SMALL, **{name: most}),)))
    with pytest.raises(
        LimitError, match=f"{name} is {most + 1}; this server allows at most {most}"
    ):
        Admission(PUBLIC).admit(task(configs=(SMALL, replace(SMALL, **{name: most + 1}))))


def test_a_prompt_that_is_too_long_is_refused_with_an_explanation():
    Admission(PUBLIC).check_prompt(1000)
    with pytest.raises(LimitError, match=r"the prompt has 1,001 tokens.* at most 1,000"):
        Admission(PUBLIC).check_prompt(1001)


@pytest.mark.parametrize("name", ["/root/.ssh", "gpt2", "../x@int8", "embedded@", "a" * 300])
def test_models_that_are_not_listed_are_refused(name):
    with pytest.raises(LimitError, match="this server allows smollm2, embedded"):
        admit(Admission(PUBLIC), task(model=name))


@pytest.mark.parametrize("name", ["embedded", "embedded@int8", "embedded-draft"])
def test_listed_models_are_served_in_any_weight_format(name):
    admit(Admission(PUBLIC), task(model=name))


def test_the_kv_limit_of_a_run_is_lowered_without_an_error():
    config = BranchingConfig(kv_limit_mib=1024)
    assert Admission(PUBLIC).limited(config) == replace(config, kv_limit_mib=256)
    assert Admission(PUBLIC).limited(replace(config, kv_limit_mib=3)).kv_limit_mib == 3


def test_the_number_of_runs_of_a_visitor_is_limited():
    admission = Admission(PUBLIC)
    runs = [admit(admission, task()) for _ in range(3)]
    with pytest.raises(LimitError, match=r"already have 3 runs .* allows 3 at a time"):
        admit(admission, task())
    admit(admission, task("b"))
    runs[0].stop()
    admit(admission, task())
    runs[1].advance_to("running")
    runs[1].stop()
    assert runs[1].active, "its step goes on, but its place is free"
    admit(admission, task())


def test_the_number_of_runs_of_all_visitors_together_is_limited():
    admission = Admission(replace(PUBLIC, max_runs=4))
    for owner in "abcd":
        admit(admission, task(owner))
    with pytest.raises(LimitError, match=r"4 runs are queued or running.* Try again"):
        admit(admission, task("e"))


def test_the_seconds_per_hour_of_a_visitor_are_limited():
    now = 0.0
    admission = Admission(Rules(seconds_per_hour=100), lambda: now)
    admit(admission, task(seconds=60.0)).stop()
    now = 600.0
    admit(admission, task(seconds=50.0)).stop()
    with pytest.raises(LimitError, match=r"took 2 min within an hour.* again in 50 min"):
        admit(admission, task())
    admit(admission, task("b"))
    now = 3601.0
    admit(admission, task())


def timed(model: str, max_paths: int, turns: int, seconds: float) -> LiveTask[RunFold]:
    task = LiveTask(run_job("a prompt", BranchingConfig(max_paths=max_paths), model))
    task.turns, task.seconds = turns, seconds
    return task


def test_there_are_no_seconds_without_a_measurement_of_this_model() -> None:
    config = BranchingConfig(max_paths=16, max_new_tokens=48)
    assert tasks.most_tokens(config) == 768
    assert tasks.run_seconds(config, "embedded", []) is None
    assert tasks.run_seconds(config, "embedded", [timed("gpt2", 16, 10, 1.0)]) is None
    assert tasks.run_seconds(config, "embedded", [timed("embedded", 16, 0, 0.0)]) is None


def test_the_pace_comes_from_the_newest_run_with_the_nearest_path_limit() -> None:
    config = BranchingConfig(max_paths=16, max_new_tokens=50)
    earlier = [
        timed("embedded", 12, 10, 1.0),
        timed("embedded", 20, 10, 2.0),
        timed("embedded", 64, 10, 9.0),
    ]
    assert tasks.run_seconds(config, "embedded", earlier) == 10.0


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
    timed = tasks.timed_cells("embedded", earlier)
    assert [one.seconds for one in timed] == [0.5] * 4
    assert tasks.timed_cells("other", [*earlier, swept("other", 0, 0.0)]) == []
    grid = Grid({"entropy_threshold": (0.3, 0.9)}, BranchingConfig(max_new_tokens=20), (1, 2, 3))
    resumed = swept("embedded", 4, 7.0, known=6)
    assert [one.seconds for one in tasks.timed_cells("embedded", [resumed])] == [7.0]
    items = items_of([TuningPrompt("a", Question("a prompt", (), {}, ""))], grid)
    assert tasks.sweep_seconds(items, timed) == pytest.approx(1.2 * 3 * 20 * 0.5 / 10)
    assert tasks.sweep_seconds(items, []) is None


def test_the_pace_of_a_sweep_comes_from_the_nearest_path_limit_and_the_same_policy() -> None:
    def timed(policy: str, max_paths: int, seconds: float) -> Cell:
        settings = {"policy": policy, "max_paths": max_paths, "max_new_tokens": 10}
        return cell(0.3, 1, settings=settings, seconds=seconds)

    cells = [timed("fair", 4, 1.0), timed("fair", 16, 2.0), timed("independent", 12, 7.0)]
    base = BranchingConfig(max_paths=12, max_new_tokens=10)
    items = items_of([TuningPrompt("a", Question("a prompt", (), {}, ""))], Grid({}, base))
    assert tasks.sweep_seconds(items, cells) == pytest.approx(1.2 * 2.0)


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
