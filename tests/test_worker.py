"""The app's worker, without a browser: several runs at once, stop, failure, forgetting."""

import time
from collections.abc import Callable

import pytest

from app.worker import LiveRun, Worker
from eab.config import BranchingConfig
from eab.errors import ModelError
from eab.models.loading import load_model
from eab.run import fold

CONFIG = BranchingConfig(max_new_tokens=12, max_paths=4)


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def worker() -> Worker:
    model = load_model()

    def load(name: str) -> object:
        if name == "missing":
            raise ModelError("there is no such model")
        return model

    return Worker(load)  # type: ignore[arg-type]


def finished(run: LiveRun) -> bool:
    return not run.active


def test_a_run_ends_with_the_events_of_the_engine(worker: Worker) -> None:
    run = worker.start("Once upon a time", CONFIG, "embedded")
    wait_until(lambda: finished(run))
    assert run.status == "ended"
    assert fold(run.events).samples() == run.state.samples()
    assert worker.find(run.id) is run


def test_runs_side_by_side_do_not_mix(worker: Worker) -> None:
    prompts = ["Once upon a time", "The cat sat on", "One day, a girl"]
    runs = [worker.start(prompt, CONFIG, "embedded") for prompt in prompts]
    wait_until(lambda: all(map(finished, runs)))
    alone = worker.start(prompts[1], CONFIG, "embedded")
    wait_until(lambda: finished(alone))
    assert [run.state.started.prompt for run in runs if run.state.started] == prompts
    assert runs[1].state.samples() == alone.state.samples()


def test_several_runs_take_turns(worker: Worker) -> None:
    config = BranchingConfig(max_new_tokens=60, max_paths=4)
    first, second = (worker.start("Once upon a time", config, "embedded") for _ in range(2))
    wait_until(lambda: len(second.state.steps) > 5)
    assert first.active or len(first.state.steps) == 60
    assert abs(len(first.state.steps) - len(second.state.steps)) < 30
    first.stop()
    second.stop()


def test_stop_acts_within_one_step(worker: Worker) -> None:
    run = worker.start("Once upon a time", BranchingConfig(max_new_tokens=400), "embedded")
    wait_until(lambda: len(run.state.steps) > 3)
    run.stop()
    steps = len(run.state.steps)
    wait_until(lambda: finished(run))
    assert len(run.state.steps) <= steps + 2  # the step that was being taken, and one that began meanwhile
    assert run.state.ended is not None
    assert run.state.ended.reason == "stopped"
    assert run.state.samples()


def test_a_run_that_nobody_watches_is_stopped(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.worker.UNWATCHED_SECONDS", 0.2)
    run = worker.start("Once upon a time", BranchingConfig(max_new_tokens=400), "embedded")
    wait_until(lambda: finished(run))
    assert len(run.state.steps) < 400


def test_a_run_that_breaks_says_why_and_leaves_the_others_alone(worker: Worker) -> None:
    good = worker.start("Once upon a time", CONFIG, "embedded")
    broken = worker.start("Once upon a time", CONFIG, "missing")
    empty = worker.start("   ", CONFIG, "embedded")
    wait_until(lambda: finished(good) and finished(broken) and finished(empty))
    assert (broken.status, broken.message) == ("failed", "there is no such model")
    assert empty.status == "failed"
    assert "the prompt is empty" in empty.message
    assert good.status == "ended"


def test_old_runs_are_forgotten_but_not_live_ones(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.worker.KEPT_RUNS", 3)
    runs = []
    for _ in range(5):
        runs.append(worker.start("   ", CONFIG, "embedded"))
        wait_until(lambda: finished(runs[-1]))
    assert worker.find(runs[0].id) is None
    assert worker.find(runs[-1].id) is runs[-1]
