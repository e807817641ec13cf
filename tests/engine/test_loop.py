"""Many runs through one scheduler: each equals the run alone, and runs split the time of a pass."""

import time
from contextlib import closing

from equality import decisions
from saying_model import saying_model

from eab.config import BranchingConfig
from eab.engine import scheduler
from eab.engine.loop import ActiveRun, ManyRuns, event_stream
from eab.engine.request import Request
from eab.run.events import RunEnded

MODEL = saying_model(3)


def request(seed: int, prompt: str = "0") -> Request:
    return Request(prompt, BranchingConfig(max_new_tokens=4, max_paths=6, seed=seed))


def ended_runs(runs: ManyRuns[int]) -> list[ActiveRun[int]]:
    """All runs, in the order in which they end."""
    ended = []
    while runs.busy:
        ended += runs.step()
    return ended


def test_every_run_equals_the_same_run_alone() -> None:
    runs: ManyRuns[int] = ManyRuns(MODEL)
    for seed in range(scheduler.MAX_RUNNING + 8):  # more than run at the same time
        runs.add(seed, request(seed))
    start = time.perf_counter()
    ended = ended_runs(runs)
    seconds = [run.seconds for run in ended]
    assert min(seconds) > 0
    assert sum(seconds) < time.perf_counter() - start, "no pass counts twice"
    assert sorted(run.tag for run in ended) == [*range(scheduler.MAX_RUNNING + 8)]
    for run in ended[::7]:
        alone = [*event_stream(MODEL, request(run.tag))]
        assert decisions(run.events) == decisions(alone)
        assert run.problem == ""


def test_the_first_run_has_the_model_for_itself_so_that_its_result_is_early() -> None:
    runs: ManyRuns[int] = ManyRuns(MODEL, first_alone=True)
    for seed in range(4):
        runs.add(seed, request(seed))
    while not (ended := runs.step()):
        assert [run.tag for run in runs.active] == [0]
    assert [run.tag for run in ended] == [0]
    runs.step()
    assert [run.tag for run in runs.active] == [1, 2, 3]


def test_a_run_that_is_added_first_starts_before_those_that_wait() -> None:
    runs: ManyRuns[int] = ManyRuns(MODEL)
    runs._scheduler.max_running = 1
    for seed in range(3):
        runs.add(seed, request(seed))
    runs.step()
    assert [run.tag for run in runs.active] == [0]
    runs.add(9, request(9), first=True)
    assert [run.tag for run in ended_runs(runs)] == [0, 9, 1, 2]


def test_a_run_that_cannot_start_reports_why_and_the_others_continue() -> None:
    runs: ManyRuns[int] = ManyRuns(MODEL)
    runs.add(0, request(0, " "))
    runs.add(1, request(1))
    with closing(runs):
        failed, good = ended_runs(runs)
    assert (failed.tag, failed.problem[:19]) == (0, "the prompt is empty")
    assert good.events[-1] == RunEnded(good.step, "finished")
