"""The app's worker without a browser: several runs simultaneously, stop, failure, the queue,
probes, shared prompts, and comparisons of caches next to runs.
"""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from waiting import ended, finished, wait_until

from app.server import tasks
from app.server.batched_runs import BatchedRuns
from app.server.model_cache import ModelCache
from app.server.rules import PRIVATE
from app.server.tasks import UNWATCHED_SECONDS, LiveRun
from app.server.worker import Worker
from eab.config import BranchingConfig
from eab.engine.build import PROBED
from eab.engine.job import run_job
from eab.engine.models.loading import load_model
from eab.figures.captions import cost_sentence
from eab.labs.jobs import comparison_job
from eab.labs.measurement import Report
from eab.labs.variants import agree, cache_variants
from eab.lessons import bundled_runs
from eab.run import RunFold
from eab.run.events import RunEnded
from eab.run.threshold import probe_config

CONFIG = BranchingConfig(max_new_tokens=12, max_paths=4)
LONG = BranchingConfig(max_new_tokens=400)


@pytest.fixture
def narrow(models: ModelCache) -> Iterator[Worker]:
    """A worker that serves one run at a time."""
    worker = Worker(models, max_running=1)
    yield worker
    worker.close()


def start(
    worker: Worker,
    prompt: str = "Once upon a time",
    config: BranchingConfig = CONFIG,
    model: str = "embedded",
    owner: str = "",
) -> LiveRun:
    return worker.start(run_job(prompt, config, model), owner)


def steps(run: LiveRun) -> int:
    """The number of steps of the run so far; 0 before it has started."""
    return len(run.state.run.steps) if run.state.run is not None else 0


def busy(worker: Worker) -> LiveRun:
    """A long run that has started; later runs of its owner have to wait."""
    run = start(worker, config=LONG, owner="busy")
    wait_until(lambda: steps(run) > 0)
    return run


def queued(worker: Worker) -> LiveRun:
    run = start(worker, owner="busy")
    wait_until(lambda: worker.position(run) is not None)
    return run


def test_simultaneous_runs_do_not_mix(worker: Worker) -> None:
    prompts = ["Once upon a time", "The cat sat on", "One day, a girl"]
    runs = [start(worker, prompt) for prompt in prompts]
    wait_until(lambda: all(map(finished, runs)))
    alone = ended(start(worker, prompts[1]))
    assert [run.state.started_run().started.prompt for run in runs] == prompts
    beside, lone = (run.state.started_run().samples for run in (runs[1], alone))
    assert [sample.token_ids for sample in beside] == [sample.token_ids for sample in lone]
    assert [sample.log_prob for sample in beside] == pytest.approx(
        [sample.log_prob for sample in lone], abs=1e-4
    ), "a larger pass rounds its sums in another order"


def test_stop_takes_effect_within_one_step(worker: Worker) -> None:
    run = start(worker, config=LONG)
    wait_until(lambda: steps(run) > 3)
    run.stop()
    before = steps(run)
    wait_until(lambda: finished(run))
    assert steps(run) <= before + 2  # the step in progress, and one that started meanwhile
    assert run.state.ended.reason == "stopped"
    assert run.state.started_run().samples
    assert cost_sentence(run.state.started_run()).endswith(" Stopped.")


def test_a_failed_run_says_why_and_leaves_the_others_alone(worker: Worker) -> None:
    good, *broken = start(worker), *(start(worker, model="missing") for _ in range(4))
    empty = start(worker, "   ")
    wait_until(lambda: all(map(finished, (good, *broken, empty))))
    for one in broken:
        assert (one.status, one.message) == ("failed", "there is no such model")
    assert empty.status == "failed"
    assert "the prompt is empty" in empty.message
    assert good.status == ended(start(worker)).status == "ended", "no model was dropped"


def slow_model_cache(started: threading.Event, may_end: threading.Event) -> ModelCache:
    """A cache in which the model `slow` loads until `may_end` is set."""
    embedded = load_model()

    def load(name: str) -> object:
        if name == "slow":
            started.set()
            may_end.wait(120)
        return embedded

    return ModelCache(load)  # type: ignore[arg-type]


def test_a_slow_model_delays_no_other_run_and_stop_works_while_it_loads() -> None:
    started, may_end = threading.Event(), threading.Event()
    worker = Worker(slow_model_cache(started, may_end))
    slow = start(worker, model="slow")
    assert started.wait(120)
    ended(start(worker))
    assert slow.status == "loading"
    slow.stop()
    assert slow.status == "ended"
    assert slow.state.ended == RunEnded(0, "stopped")
    may_end.set()
    time.sleep(0.2)
    assert slow.state.run is None, "a run that was stopped while loading must not begin later"


def test_a_queued_run_can_be_stopped(narrow: Worker) -> None:
    first = busy(narrow)
    waiting = queued(narrow)
    waiting.stop()
    assert finished(waiting)
    assert waiting.state.ended == RunEnded(0, "stopped")
    assert waiting.state.run is None
    wait_until(lambda: narrow.position(waiting) is None)
    first.stop()


def test_a_bad_prompt_is_reported_without_a_wait_in_the_queue(narrow: Worker) -> None:
    first = busy(narrow)
    empty = ended(start(narrow, "  "))
    assert "the prompt is empty" in empty.message
    assert first.active
    first.stop()


def test_many_runs_of_one_owner_do_not_delay_other_owners(narrow: Worker) -> None:
    first = busy(narrow)
    often = [queued(narrow) for _ in range(4)]
    once, again = (start(narrow, "The cat sat on", owner="calm") for _ in "12")
    wait_until(lambda: finished(once))
    assert first.active, "who comes new does not wait for a slot"
    wait_until(lambda: finished(again))
    assert first.active
    position = narrow.position(often[0])
    assert (position.number, position.total) == (1, 4)
    assert position.seconds > 0
    first.stop()
    wait_until(lambda: all(map(finished, often)))
    assert [run.status for run in often] == ["ended"] * 4


def test_a_waiting_run_that_nobody_watches_leaves_the_queue(narrow: Worker) -> None:
    first = busy(narrow)
    waiting = queued(narrow)
    waiting._watched_at -= UNWATCHED_SECONDS
    wait_until(lambda: finished(waiting))
    assert waiting.state.ended == RunEnded(0, "unwatched")
    assert first.active
    first.stop()


def test_many_threads_can_start_runs_simultaneously(worker: Worker) -> None:
    runs: list[LiveRun] = []
    threads = [
        threading.Thread(target=lambda: runs.extend(start(worker, " ") for _ in range(40)))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: all(map(finished, runs)))
    assert len(runs) == 240


def test_a_probe_has_the_entropies_of_the_probe_of_a_run_and_then_ends(worker: Worker) -> None:
    asked = BranchingConfig(threshold_unit="rank", entropy_threshold=3.0, max_new_tokens=12)
    probed = replace(
        probe_config(asked), policy="fair", threshold_unit="rank", entropy_threshold=1.0
    )
    probe = ended(worker.start(run_job("The old king said", probed, "embedded", probe_only=True)))
    assert tasks.run_seconds(asked, "embedded", [probe]) is None, "it says nothing of a tree"
    run = ended(worker.start(run_job("The old king said", asked, "embedded")))
    assert probe.state.started_run().probe == run.state.started_run().probe
    assert len(probe.state.started_run().probe) == 12
    assert steps(probe) <= 1
    assert probe.state.ended.reason == "stopped"


def test_a_probe_is_made_once_and_shared_by_the_runs_of_its_prompt(
    worker: Worker, models: ModelCache
) -> None:
    PROBED.pop(models.get("embedded"), None)
    asked = BranchingConfig(threshold_unit="rank", entropy_threshold=3.0, max_new_tokens=12)
    probed = replace(
        probe_config(asked), policy="fair", threshold_unit="rank", entropy_threshold=1.0
    )
    ended(worker.start(run_job("A frog", probed, "embedded", probe_only=True)))
    ended(worker.start(run_job("A frog", asked, "embedded")))
    assert len(PROBED[models.get("embedded")]) == 1


def test_the_runs_of_all_models_share_one_limit_of_kv_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[int] = []
    counted: list[bool] = []  # whether a scheduler counts the bytes of the others
    serve = BatchedRuns.serve

    def noted(runs: BatchedRuns) -> None:
        serve(runs)
        schedulers = [*runs._schedulers.values()]
        held.append(sum(one.kv_held for one in schedulers))
        counted.extend(one.kv_held + one._kv_elsewhere() == held[-1] for one in schedulers)

    monkeypatch.setattr(BatchedRuns, "serve", noted)
    two = ModelCache(lambda _: load_model())
    worker = Worker(two, rules=replace(PRIVATE, kv_total_mib=1))
    config = BranchingConfig(entropy_threshold=0.2, max_paths=16, max_new_tokens=40)
    prompt = "Once upon a time there was a little girl who"
    runs = [worker.start(run_job(prompt, config, name), name) for name in ("one", "two") * 2]
    for run in runs:
        run.mark_watched()
        wait_until(lambda run=run: finished(run), 120)
    worker.close()
    assert {run.message for run in runs} == {""}
    texts = [[one.token_ids for one in run.state.started_run().samples] for run in runs]
    assert texts == [texts[0]] * len(runs)
    oldest_of_each = 2 * max(
        step.kv.bytes_held for step in runs[0].state.started_run().steps if step.kv
    )
    assert len(counted) > len(held)
    assert all(counted)
    assert max(held) <= max(2**20, oldest_of_each)


def reused(worker: Worker, prompt: str, scope: str = "") -> int:
    config = replace(CONFIG, entropy_threshold=1.0, threshold_unit="nats")  # needs no probe
    run = ended(worker.start(run_job(prompt, config, "embedded"), scope, scope))
    return run.state.started_run().tokens_reused


def test_on_a_private_server_all_visitors_share_computed_prompts(worker: Worker) -> None:
    prompt = "The red ball of my little dog"
    assert [reused(worker, prompt, who) > 3 for who in ("a", "b")] == [False, True]
    (shown,) = worker.prefixes_now("a")
    assert prompt in "".join(one.text or "" for one in shown.segments)
    assert all(one.text is None for one in worker.prefixes_now("c")[0].segments)
    reused(worker, "The red", "d")  # a shorter prompt does not reveal how others continued it
    shown = "".join(one.text or "" for one in worker.prefixes_now("d")[0].segments)
    assert "The red" in shown
    assert "ball of my" not in shown


def test_a_rule_restricts_typed_prompts_to_the_visitor_who_typed_them(models: ModelCache) -> None:
    worker = Worker(models, rules=replace(PRIVATE, share_prefixes="visitor"))
    own, bundled = "The red ball of my little dog", sorted(bundled_runs.prompts())[0]
    assert [reused(worker, own, who) > 3 for who in ("a", "b", "a")] == [False, False, True]
    assert [reused(worker, bundled, who) > 3 for who in ("a", "b")] == [False, True]
    worker.close()


def test_a_rule_turns_the_prefix_cache_off(models: ModelCache) -> None:
    worker = Worker(models, rules=replace(PRIVATE, prefix_cache_mib=0))
    assert [reused(worker, "The red ball") for _ in range(2)] == [0, 0]
    [(name, limit)] = [(one.model, one.byte_limit) for one in worker.prefixes_now("")]
    assert (name, limit) == ("embedded", 0), "it is said, also when nothing is served"
    worker.close()


def test_a_comparison_takes_turns_with_a_run_and_its_passes_are_not_shown(
    narrow: Worker,
) -> None:
    both = cache_variants(("tree", "deep-copy"))
    compared = narrow.start(comparison_job("Once upon a time", CONFIG, "embedded", "caches", both))
    wait_until(lambda: narrow.serving_now().taking_turns == 1)
    assert narrow.serving_now().passes == ()
    run = start(narrow, "The cat sat on")
    for one, kind, other in ((run, RunFold, Report), (compared, Report, RunFold)):
        assert narrow.find(one.id, kind) is one
        assert narrow.find(one.id, other) is None
    wait_until(lambda: finished(compared) and finished(run))
    assert compared.status == run.status == "ended"
    caches = [one.started.config.cache for one in compared.state.runs.values()]
    assert caches == ["tree", "deep-copy", "tree"]
    assert agree(compared.state)
