"""After many runs in one process, only those of the registry stay in memory."""

import gc
import time
import weakref
from collections import Counter

import pytest

from app.server.job import run_job
from app.server.live_run import LiveTask
from app.server.model_cache import ModelCache
from app.server.registry import RunRegistry
from app.server.worker import Worker
from app.state.variants import comparison_job
from eab.caches.tree import TreeCache
from eab.config import BranchingConfig
from eab.engine.generation import Generation
from eab.events import PathPrediction, Predicted, Probed
from eab.labs.variants.results import cache_variants
from eab.lessons import bundled_runs
from eab.models.huggingface import HuggingFaceModel
from eab.run import RunFold, RunState

RUNS = 60
KEPT = 10
CONFIG = BranchingConfig(max_new_tokens=2, max_paths=4)
STARTED = bundled_runs.events_of(bundled_runs.recordings()[0])[0]


def alive() -> Counter[type]:
    """How many of the large objects there are."""
    gc.collect()
    return Counter(
        kind
        for kind in map(type, gc.get_objects())
        if kind in (LiveTask, RunState, Generation, TreeCache)
    )


def test_only_the_kept_runs_stay_in_memory(
    embedded: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.server.registry.MAX_RUNS", KEPT)
    worker = Worker(ModelCache(lambda _: embedded))
    before = alive()
    runs = []
    for number in range(RUNS):
        compared = number % 20 == 0
        asked, owner = ("Once upon a time", CONFIG, "embedded"), str(number % 7)
        run = (
            worker.start(comparison_job(*asked, cache_variants()), owner)
            if compared
            else worker.start(run_job(*asked), owner)
        )
        if number % 13 == 0:
            run.stop()
        deadline = time.monotonic() + 30
        while run.active:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        runs.append(weakref.ref(run))
    del run
    # The worker's thread drops the last run when it starts the next.
    worker.start(run_job(" ", CONFIG, "embedded"))
    time.sleep(0.3)
    after = alive()
    kept = [ref for ref in runs if ref() is not None]
    assert len(kept) <= KEPT
    assert kept == runs[-len(kept) :], "the newest are kept"
    assert after[LiveTask] - before[LiveTask] <= KEPT + 1
    assert after[RunState] - before[RunState] <= 5 * (KEPT + 1), "a comparison has four"
    assert after[Generation] <= before[Generation]
    assert after[TreeCache] <= before[TreeCache]
    worker.close()


def test_long_runs_are_forgotten_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.server.registry.MAX_SIZE", 1000)
    registry = RunRegistry()
    runs = [LiveTask(run_job("x", CONFIG, "embedded")) for _ in range(10)]
    for run in runs:
        registry.add(run)
        for _ in range(100):
            run.apply(Probed(0, 0.0))
        run.apply(STARTED)
        run.apply(Predicted(0, (PathPrediction(0, 0.5, ()),) * 199))
        run.fail("ended")
    assert [registry.find(run.id, RunFold) is not None for run in runs] == [False] * 6 + [True] * 4


def test_live_runs_are_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.server.registry.MAX_RUNS", 2)
    registry = RunRegistry()
    runs = [LiveTask(run_job("x", CONFIG, "embedded")) for _ in range(5)]
    for run in runs:
        registry.add(run)
    assert all(registry.find(run.id, RunFold) is run for run in runs)
