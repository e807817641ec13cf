"""Runs in shared passes: the log of the passes, and what is said of a prefix cache (its segments, and
why it is off or empty).
"""

import time
from collections.abc import Iterator

import pytest

from app.server.batched_runs import KEPT_PASSES, PrefixesNow, SegmentNow, ServingLog, ServingNow
from app.server.model_cache import ModelCache
from app.server.tasks import LiveRun
from app.server.worker import Worker
from eab.config import BranchingConfig
from eab.engine.job import run_job
from eab.engine.models.loading import load_model
from eab.run.events import StepTimed

CONFIG = BranchingConfig(max_new_tokens=20, max_paths=2, seed=1)
SECRET = "Once upon a time, there was a secret prompt. It"


def live(owner: str) -> LiveRun:
    return LiveRun(run_job(SECRET, CONFIG, "embedded"), owner)


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker(ModelCache(lambda _: load_model()), max_running=2)
    yield made
    made.close()


def test_runs_are_numbered_in_the_order_of_service_and_keep_their_slots() -> None:
    log, first, second = ServingLog(), live("a"), live("b")
    step = [StepTimed(1, 1, 0.1, 0.1)]
    log.note(0.1, 0, {first: step})
    log.note(0.1, 3, {first: step, second: step})
    log.forget(first)
    log.note(0.1, 0, {second: step, live("c"): step})
    slots = [{one.run: one.slot for one in logged.record.served} for logged in log.passes]
    assert slots == [{1: 0}, {1: 0, 2: 1}, {2: 1, 3: 0}]
    assert [logged.waiting for logged in log.passes] == [0, 3, 0]
    assert log.passes[1].owners == {1: "a", 2: "b"}


def test_a_tab_finds_its_newest_run_by_its_number_and_another_does_not() -> None:
    log, step = ServingLog(), [StepTimed(1, 1, 0.1, 0.1)]
    log.note(0.1, 0, {live(owner): step for owner in ("a", "a", "b")})
    for owner, number in (("a", {"Your run": "2"}), ("b", {"Your run": "3"}), ("c", {})):
        assert ServingNow(log.passes, 3, 0, 0, 0.0).of_owner(owner) == number
        assert ServingNow(log.passes, 0, 0, 4, 0.0).of_owner(owner) == {"Other tasks": "4"}


def test_passes_without_runs_are_not_kept_and_old_passes_are_dropped() -> None:
    log, run = ServingLog(), live("a")
    log.note(0.1, 0, {run: []})
    assert log.passes == ()
    for _ in range(KEPT_PASSES + 5):
        log.note(0.1, 0, {run: [StepTimed(1, 1, 0.1, 0.1)]})
    assert len(log.passes) == KEPT_PASSES


def test_the_worker_reports_served_and_waiting_runs_but_no_prompt(worker: Worker) -> None:
    runs = [worker.start(run_job(SECRET, CONFIG, "embedded"), "a") for _ in range(3)]
    deadline, most = time.monotonic() + 120, 0
    while any(run.active for run in runs):
        assert time.monotonic() < deadline
        now = worker.serving_now()
        assert now.running <= 2
        assert now.busy or not any(run.status == "running" for run in runs) or now.passes
        most = max(most, now.running)
        time.sleep(0.005)
    now = worker.serving_now()
    assert most == 2
    assert {run for one in now.passes for run in one.owners} == {1, 2, 3}
    assert {part.slot for one in now.passes for part in one.record.served} == {0, 1}
    assert any(one.waiting for one in now.passes)
    assert max(one.record.kv_bytes for one in now.passes) > 0
    assert "secret" not in repr(now)
    ends = [one.ended_at for one in now.passes]
    assert ends == sorted(ends)


LONG = "Once upon a time, there was a little girl named Lily who loved to play in the garden"


def test_long_texts_are_shortened_and_those_of_other_runs_are_not_shown() -> None:
    segments = [SegmentNow(0, -1, LONG, 20, 1, 2), SegmentNow(1, 0, None, 3, 0, 0)]
    first, second = PrefixesNow("model", 64, 1000, 40, 10, True, segments).table
    assert (len(first[0]), first[1:]) == (60, ["20", "1.2 KiB", "1", "2"])
    assert second[:2] == ["text of another run", "3"]


def test_an_empty_prefix_cache_says_why() -> None:
    for limit, asked, can_reuse, reason in (
        (0, 0, True, "Turned off (rule prefix_cache_mib)"),
        (0, 0, False, "its states are"),
        (1000, 0, True, "no run has been made yet."),
        (1000, 40, True, "fitted into it (at most 1000 B)"),
    ):
        assert reason in PrefixesNow("model", 64, limit, asked, 0, can_reuse, ()).why_empty


def test_the_measures_are_those_of_all_segments() -> None:
    segments = [SegmentNow(0, -1, LONG, 20, 1, 2), SegmentNow(1, 0, None, 4, 1, 0)]
    now = PrefixesNow("model", 64, 2048, 40, 10, True, segments)
    assert now.why_empty == ""
    assert now.measures == {
        "Segments": "2",
        "Held": "1.5 KiB",
        "At most": "2.0 KiB",
        "Runs that read it": "1",
        "Prompt tokens": "40",
        "Of these found": "25%",
    }
