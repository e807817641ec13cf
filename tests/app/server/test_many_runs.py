"""After many runs in one process, only the runs that the registry keeps stay in memory."""

import gc
import math
from collections import Counter
from weakref import ref

import pytest
from made_runs import bundled
from waiting import ended, wait_until

from app.server.live_run import LiveTask
from app.server.model_cache import ModelCache
from app.server.registry import LAST_USED, PackedRun, RunRegistry
from app.server.worker import MOST_UNPACKED, Worker
from eab.caches.tree import TreeCache
from eab.config import BranchingConfig
from eab.engine.generation import Generation
from eab.engine.job import run_job
from eab.events import Labelled, LabelRule, Probed
from eab.labs.jobs import comparison_job
from eab.labs.variants.results import cache_variants
from eab.models.huggingface import HuggingFaceModel
from eab.run import RunFold, fold

RUNS = 60
KEPT = 10
CONFIG = BranchingConfig(max_new_tokens=2, max_paths=4)
STARTED = bundled("bridge")[0]


def alive() -> Counter[type]:
    """The number of live generations and tree caches, the large objects of a run."""
    gc.collect()
    return Counter(kind for kind in map(type, gc.get_objects()) if kind in (Generation, TreeCache))


def test_only_the_kept_runs_stay_in_memory(
    embedded: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.server.registry.MAX_RUNS", KEPT)
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
    # The older runs are packed. Runs of other tests do not count: their own workers pack them.
    wait_until(lambda: sum(run() is not None for run in runs) <= LAST_USED)
    after = alive()
    known = [worker.find(*known) is not None for known in ids]
    assert known == [False] * (RUNS - KEPT + 1) + [True] * (KEPT - 1), "the newest are kept"
    assert after[Generation] <= before[Generation]
    assert after[TreeCache] <= before[TreeCache]
    worker.close()


def test_a_run_that_nobody_holds_is_packed_and_unpacked_unchanged(worker: Worker) -> None:
    run = ended(worker.start(run_job("Once upon a time", CONFIG, "embedded"), "a"))
    assert worker.find(run.id, RunFold) is run
    key, whole, texts, events, seconds = run.id, ref(run), run.texts(), run.events, run.seconds
    del run
    for _ in range(LAST_USED + 1):
        ended(worker.start(run_job("The fox", CONFIG, "embedded"), "b"))
    wait_until(lambda: whole() is None)
    outline = next(run for run in worker.remembered if run.id == key)
    assert (outline.texts(), outline.seconds, outline.events) == (texts, seconds, [])
    found = worker.find(key, RunFold)
    assert found is not None
    assert found.state.run is not None
    assert found.state.run.paths == fold(events).paths
    assert worker.find(key, RunFold) is found, "all pages share one"
    assert found.events == events
    assert (found.texts(), found.seconds, found.owner) == (texts, seconds, "a")
    assert (found.active, found.ending) == (False, ("finished", ""))


def test_labels_of_a_run_that_was_packed_before_are_kept(worker: Worker) -> None:
    run = ended(worker.start(run_job("Once upon a time", CONFIG, "embedded"), "a"))
    key, whole = run.id, ref(run)
    wait_until(lambda: not next(each for each in worker.remembered if each.id == key).events)
    event = Labelled(1, (LabelRule("a", "contains", "a"),))
    run.state.apply(event)
    run.events.append(event)
    worker.keep_changed(run)
    del run
    for _ in range(LAST_USED + 1):
        ended(worker.start(run_job("The fox", CONFIG, "embedded"), "b"))
    wait_until(lambda: whole() is None)
    found = worker.find(key, RunFold)
    assert found is not None
    assert found.state.run is not None
    assert found.state.run.labels == event.rules


def test_the_oldest_runs_are_packed_even_if_the_worker_never_rests(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.server.worker.REST", 1000.0)
    ended(worker.start(run_job("The fox", CONFIG, "embedded")))  # then the worker rests this long
    runs = [
        ref(ended(worker.start(run_job("The fox", CONFIG, "embedded"))))
        for _ in range(LAST_USED + MOST_UNPACKED + 3)
    ]
    wait_until(lambda: runs[0]() is None)
    assert all(run() is not None for run in runs[-MOST_UNPACKED:])


def test_a_failed_run_is_packed_with_its_reason() -> None:
    registry = RunRegistry()
    run = LiveTask(run_job("x", CONFIG, "embedded"))
    registry.add(run)
    run.apply(STARTED)
    run.fail("the reason")
    key = run.id
    registry.pack()
    for _ in range(LAST_USED):
        registry.add(LiveTask(run_job("x", CONFIG, "embedded")))
    del run
    found = registry.find(key, RunFold)
    assert found is not None
    assert found.ending == ("failed", "the reason")
    assert found.events == [STARTED]


def test_a_run_that_cannot_be_packed_stays_and_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = RunRegistry()
    run = LiveTask(run_job("x", CONFIG, "embedded"))
    registry.add(run)
    run.apply(Probed(0, math.nan))
    run.apply(STARTED)
    run.fail("ended")
    assert registry.pack()
    assert not registry.pack()
    assert registry.runs == [run]


def test_large_runs_are_forgotten_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = RunRegistry()
    runs = [LiveTask(run_job("x", CONFIG, "embedded")) for _ in range(10)]
    for run in runs:
        run.apply(STARTED)
        run.fail("ended")
        registry.add(run)
        registry.pack()
        monkeypatch.setattr("app.server.registry.MAX_PACKED_BYTES", 4 * PackedRun(run).size)
    registry.add(LiveTask(run_job("x", CONFIG, "embedded")))
    assert [registry.find(run.id, RunFold) is not None for run in runs] == [False] * 6 + [True] * 4


def test_live_runs_are_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.server.registry.MAX_RUNS", 2)
    registry = RunRegistry()
    runs = [LiveTask(run_job("x", CONFIG, "embedded")) for _ in range(5)]
    for run in runs:
        registry.add(run)
    assert all(registry.find(run.id, RunFold) is run for run in runs)
