"""The app's worker runs comparisons of caches: next to runs, stopped, failed, and found again."""

from waiting import finished, wait_until

from app.server.job import run_job
from app.server.worker import Worker
from app.state.variants import comparison_job
from eab.config import BranchingConfig
from eab.labs.variants.results import CACHES, VariantRuns, cache_variants
from eab.run import RunFold

CONFIG = BranchingConfig(max_new_tokens=12, max_paths=4)


def test_a_comparison_runs_all_caches_while_a_run_takes_its_turns(worker: Worker) -> None:
    compared = worker.start(
        comparison_job("Once upon a time", CONFIG, "embedded", cache_variants())
    )
    run = worker.start(run_job("The cat sat on", CONFIG, "embedded"))
    wait_until(lambda: finished(compared) and finished(run))
    assert compared.status == run.status == "ended"
    assert [one.started.config.cache for one in compared.state.runs] == list(CACHES)
    assert compared.state.agreed


def test_stop_ends_a_comparison_at_its_step_and_no_further_cache_starts(worker: Worker) -> None:
    compared = worker.start(
        comparison_job(
            "Once upon a time", BranchingConfig(max_new_tokens=400), "embedded", cache_variants()
        )
    )
    wait_until(lambda: bool(compared.state.runs) and len(compared.state.runs[0].steps) > 3)
    compared.stop()
    wait_until(lambda: finished(compared))
    assert compared.state.ended is not None
    assert compared.state.ended.reason == "stopped"
    assert len(compared.state.runs) == 1
    assert len(compared.state.runs[0].steps) < 400


def test_a_comparison_that_cannot_start_says_why(worker: Worker) -> None:
    missing, empty = (
        worker.start(comparison_job("x", CONFIG, "missing", cache_variants())),
        worker.start(comparison_job("  ", CONFIG, "embedded", cache_variants())),
    )
    wait_until(lambda: finished(missing) and finished(empty))
    assert (missing.status, missing.message) == ("failed", "there is no such model")
    assert "the prompt is empty" in empty.message
    assert not empty.state.runs


def test_a_run_is_not_found_as_a_comparison_nor_the_other_way_round(worker: Worker) -> None:
    run, compared = (
        worker.start(run_job(" ", CONFIG, "embedded")),
        worker.start(comparison_job(" ", CONFIG, "embedded", cache_variants())),
    )
    assert worker.find(run.id, RunFold) is run
    assert worker.find(compared.id, VariantRuns) is compared
    assert worker.find(compared.id, RunFold) is None
    assert worker.find(run.id, VariantRuns) is None
