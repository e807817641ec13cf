"""The jobs of all features: their prompts and settings are checked before they are queued."""

from collections.abc import Iterator
from typing import Any

import pytest
from waiting import ended, wait_until

from app.server.model_cache import ModelCache
from app.server.rules import Rules
from app.server.worker import Worker
from eab.config import BranchingConfig
from eab.engine.job import Job, extended_run_job, run_job
from eab.errors import LimitError
from eab.labs.batching import ServingRequest, Workload
from eab.labs.jobs import comparison_job, formats_job, serving_job, sweep_job
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.prompt_sets import Question, TuningPrompt
from eab.labs.variants import cache_variants
from eab.lessons.checks.policy import TableModel, random_table
from eab.run.record import dumps, loads

RULES = Rules(max_prompt_tokens=5, max_paths=8, kv_limit_mib=3)
SHORT, LONG = "0 1", "0 1 0 1 0 1"
SMALL = BranchingConfig(max_paths=2, max_new_tokens=4)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    model = TableModel(random_table(3, 12))
    made = Worker(ModelCache(lambda _: model), rules=RULES)  # type: ignore[arg-type, return-value]
    yield made
    made.close()


def prompts(*texts: str) -> list[TuningPrompt]:
    return [TuningPrompt(text, Question(text, (), {}, "")) for text in texts]


@pytest.mark.parametrize(
    "job",
    [
        run_job(LONG, SMALL, "any"),
        comparison_job(LONG, SMALL, "any", "caches", cache_variants()),
        serving_job(Workload((ServingRequest(SHORT, 2), ServingRequest(LONG, 2))), "any"),
        sweep_job("sweep", Grid({"max_paths": [2, 4]}, SMALL), prompts(SHORT, LONG), "any"),
        formats_job(LONG, "any"),
    ],
    ids=lambda job: job.kind,
)
def test_every_prompt_of_a_job_is_checked_before_queueing(worker: Worker, job: Job[Any]) -> None:
    live = worker.start(job)
    wait_until(lambda: live.status != "loading")
    assert live.status == "failed"
    assert live.message.startswith("the prompt has 6 tokens; this server allows at most 5")
    assert not live.events


def test_the_settings_of_all_runs_of_a_job_are_checked_at_its_request(worker: Worker) -> None:
    sweep = sweep_job("sweep", Grid({"max_paths": [2, 9]}, SMALL), prompts(SHORT), "any")
    with pytest.raises(LimitError, match="max_paths is 9; this server allows at most 8"):
        worker.start(sweep)


def test_no_job_has_more_kv_memory_than_the_rules_allow(worker: Worker) -> None:
    live = worker.start(run_job(SHORT, SMALL, "any"))
    assert live.request.config.kv_limit_mib == 3
    assert ended(live).state.run.started.config.kv_limit_mib == 3


def test_a_complete_run_is_explored_and_stays_complete_if_that_stops_or_fails() -> None:
    model = TableModel(random_table(3, 5), stop_ids=[4])
    worker = Worker(ModelCache(lambda _: model))  # type: ignore[arg-type, return-value]
    config = BranchingConfig(max_paths=3, max_new_tokens=6, entropy_threshold=0.8)
    try:
        first = ended(worker.start(run_job(SHORT, config, "any")))
        explored = ended(worker.start(extended_run_job(first.events, "any", until=0.2)))
        run = explored.state.started_run()
        assert len(run.explored) > 0
        assert run.samples == first.state.started_run().samples
        assert loads(dumps(explored.events)) == explored.events

        stopped = worker.start(extended_run_job(explored.events, "any"))
        wait_until(lambda: len(stopped.events) > len(explored.events))
        stopped.stop()
        given = ended(worker.start(extended_run_job(explored.events, "any", text=" 3 3")))
        refused = ended(worker.start(extended_run_job(explored.events, "any", text=" 1" * 9)))
        for live in (ended(stopped), given, refused):
            assert live.ending == ("finished", "")
            samples = live.state.started_run().samples
            assert {each.text: each.weight for each in samples} == {
                each.text: pytest.approx(each.weight) for each in run.samples
            }
        assert "at most 6" in refused.message
        assert not given.message
    finally:
        worker.close()
