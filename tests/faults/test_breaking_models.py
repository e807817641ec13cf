"""A model fails during generation: the run says why and keeps its tokens; the next run works."""

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from breaking_model import BreakingModel
from waiting import ended

from app.server.model_cache import ModelCache
from app.server.worker import Worker
from eab.config import BranchingConfig
from eab.engine.job import run_job
from eab.errors import ModelError
from eab.labs.jobs import comparison_job
from eab.labs.variants import cache_variants

CONFIG = BranchingConfig(max_new_tokens=12, max_paths=4)
PROMPT = "1 2 3"
OUT_OF_MEMORY = "this machine has too little memory for the run. Its tokens so far are kept; use"
ENDINGS = [
    (RuntimeError("a kernel failed"), "stopped with an error (RuntimeError: a kernel failed)"),
    (ModelError("its logits are no numbers"), "its logits are no numbers"),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), OUT_OF_MEMORY),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory"), OUT_OF_MEMORY),
    (MemoryError(), OUT_OF_MEMORY),
]


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    """Workers to close at the end of the test."""
    made: list[Worker] = []
    yield made
    for worker in made:
        worker.close()


def serving(workers: list[Worker], error: BaseException) -> Worker:
    """A worker with a model "0" that fails with this error, and a model "1" that never fails."""
    models = [BreakingModel(error), BreakingModel(error, passes=10**9)]
    workers.append(Worker(ModelCache(lambda name: models[int(name)])))
    return workers[0]


def fails_and_the_next_works(worker: Worker, words: str, job: Callable[[], Any]) -> Any:
    """Check that the job fails with these words and then works; return the task that failed."""
    broken = ended(worker.start(job()))
    assert broken.ending[0] == "failed"
    assert words in broken.ending[1]
    assert ended(worker.start(job())).ending == ("finished", "")
    return broken


@pytest.mark.parametrize(("error", "words"), ENDINGS)
def test_a_forward_pass_that_raises_fails_its_run_with_a_message(
    workers: list[Worker], error: Exception, words: str
) -> None:
    job = partial(run_job, PROMPT, CONFIG, "0")
    run = fails_and_the_next_works(serving(workers, error), words, job)
    assert len(run.state.started_run().steps) == 4, "tokens so far are kept"


def test_a_failing_comparison_reports_why_and_the_next_one_works(workers: list[Worker]) -> None:
    worker = serving(workers, RuntimeError("a kernel failed"))
    fails_and_the_next_works(
        worker,
        "a kernel failed",
        lambda: comparison_job(PROMPT, CONFIG, "0", "caches", cache_variants()),
    )


class Panic(BaseException):
    """An error of compiled code: it is not an Exception, so no handler on the way catches it."""


def test_a_worker_that_stops_tells_every_visitor_and_is_restarted(
    workers: list[Worker], caplog: pytest.LogCaptureFixture
) -> None:
    worker = serving(workers, Panic("its message may quote a prompt"))
    long = BranchingConfig(max_new_tokens=4000, max_paths=4)
    beside = worker.start(run_job(PROMPT, long, "1"), "other")
    compared = worker.start(
        comparison_job(PROMPT, long, "1", "caches", cache_variants()), "another"
    )
    broken = worker.start(run_job(PROMPT, CONFIG, "0"))
    for run in (broken, beside, compared):
        assert ended(run).ending[0] == "failed"
        assert "worker stopped with an error (Panic) and was restarted" in run.ending[1]
    [noted] = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert "The worker stopped with Panic and was restarted" in noted.getMessage()
    assert "breaking_model.py" in noted.getMessage()
    assert "prompt" not in noted.getMessage()
    following = [worker.start(run_job(PROMPT, CONFIG, name)) for name in "01"]
    assert [ended(run).ending for run in following] == [("finished", "")] * 2


def test_a_server_that_cannot_start_a_thread_says_so(workers: list[Worker]) -> None:
    worker = serving(workers, RuntimeError())
    usual = threading.stack_size(2**47)  # no room for a thread with such a stack
    try:
        refused = worker.start(run_job(PROMPT, CONFIG, "1"))
    finally:
        threading.stack_size(usual)
    assert refused.ending[0] == "failed"
    assert "cannot start another run now (can't start new thread). Try again" in refused.ending[1]
    assert ended(worker.start(run_job(PROMPT, CONFIG, "1"))).ending == ("finished", "")


def test_a_model_that_panics_while_loading_is_reported(workers: list[Worker]) -> None:
    def load(name: str) -> BreakingModel:
        if name == "panics":
            raise Panic("a tokenizer of compiled code")
        return BreakingModel(RuntimeError(), passes=1000)

    workers.append(Worker(ModelCache(load)))
    broken, following = (
        workers[0].start(run_job(PROMPT, CONFIG, name)) for name in ("panics", "0")
    )
    assert "an error (Panic: a tokenizer of compiled code)" in ended(broken).ending[1]
    assert ended(following).ending == ("finished", "")
