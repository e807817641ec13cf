"""After many runs in one process, only those that the worker remembers stay in memory."""

import gc
from collections import Counter
from weakref import ref

import pytest
from made_runs import bundled
from waiting import ended

from app.server.model_cache import ModelCache
from app.server.tasks import LiveTask
from app.server.worker import Remembered, Worker
from eab.config import BranchingConfig
from eab.engine.caches.tree import TreeCache
from eab.engine.generation import Generation
from eab.engine.job import run_job
from eab.engine.models.huggingface import HuggingFaceModel
from eab.labs.jobs import comparison_job
from eab.labs.variants import cache_variants
from eab.run import RunFold

RUNS = 60
KEPT = 10
CONFIG = BranchingConfig(max_new_tokens=2, max_paths=4)
EVENTS = bundled("bridge")


def alive() -> Counter[type]:
    """The number of live generations and tree caches, the large objects of a run."""
    gc.collect()
    return Counter(kind for kind in map(type, gc.get_objects()) if kind in (Generation, TreeCache))


def test_only_the_kept_runs_stay_in_memory(
    embedded: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.server.worker.MAX_REMEMBERED", KEPT)
    worker = Worker(ModelCache(lambda _: embedded))
    before = alive()
    runs, ids = [], []
    for number in range(RUNS):
        compared = number % 20 == 0
        asked, owner = ("Once upon a time", CONFIG, "embedded"), str(number % 7)
        run = (
            worker.start(comparison_job(*asked, "caches", cache_variants()), owner)
            if compared
            else worker.start(run_job(*asked), owner)
        )
        if number % 13 == 0:
            run.stop()
        ended(run)
        runs.append(ref(run))
        ids.append((run.id, type(run.state)))
    del run
    worker.start(run_job(" ", CONFIG, "embedded"))
    after = alive()
    assert sum(run() is not None for run in runs) == KEPT - 1
    known = [worker.find(*known) is not None for known in ids]
    assert known == [False] * (RUNS - KEPT + 1) + [True] * (KEPT - 1), "the newest are kept"
    assert after[Generation] <= before[Generation]
    assert after[TreeCache] <= before[TreeCache]
    worker.close()


def test_large_runs_are_forgotten_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered = Remembered()
    runs = [LiveTask(run_job("x", CONFIG, "embedded")) for _ in range(10)]
    for run in runs:
        for event in EVENTS:
            run.apply(event)
        remembered.add(run)
    monkeypatch.setattr("app.server.worker.MAX_TOKENS", 4 * runs[0].tokens)
    remembered.add(LiveTask(run_job("x", CONFIG, "embedded")))
    found = [remembered.find(run.id, RunFold) is not None for run in runs]
    assert found == [False] * 6 + [True] * 4


def test_live_runs_are_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.server.worker.MAX_REMEMBERED", 2)
    remembered = Remembered()
    runs = [LiveTask(run_job("x", CONFIG, "embedded")) for _ in range(5)]
    for run in runs:
        remembered.add(run)
    assert all(remembered.find(run.id, RunFold) is run for run in runs)
