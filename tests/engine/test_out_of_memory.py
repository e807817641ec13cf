"""When memory runs out, the run ends with a message, and all that it held is freed immediately."""

import gc
import weakref
from collections.abc import Iterator, Sequence

import pytest
import torch
from equality import PROMPT
from served_together import BASE, chain, chain_request
from torch import Tensor

from eab.engine.caches.base import ForwardBatch
from eab.engine.caches.tree import TreeCache
from eab.engine.models.machine import Stopwatch, is_out_of_memory
from eab.engine.request import Request
from eab.engine.scheduler import Scheduler
from eab.run import fold
from eab.run.events import RunEnded

OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
    MemoryError(),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("CUDA error: out of memory"),  # pinned memory
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
]


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Turn garbage collection off, so that reference cycles are not freed."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Failing:
    """A forward pass that fails after some passes while it holds a tensor."""

    def __init__(self, model, error: Exception, passes: int) -> None:
        self._forward, self._error, self._passes = model.forward, error, passes
        self.held: list[weakref.ref] = []

    def __call__(self, batches: Sequence[ForwardBatch]) -> Tensor:
        if self._passes:
            self._passes -= 1
            return self._forward(batches)
        partial_result = torch.zeros(1000)
        self.held += [weakref.ref(partial_result)]
        self.held += [weakref.ref(batch.cache) for batch in batches]
        raise type(self._error)(*self._error.args)  # a copy that nothing else holds


def test_which_errors_are_out_of_memory():
    assert all(map(is_out_of_memory, OUT_OF_MEMORY))
    assert not is_out_of_memory(RuntimeError("a kernel failed"))
    assert not is_out_of_memory(ValueError("out of memory"))


@pytest.mark.parametrize("error", OUT_OF_MEMORY[::2], ids=lambda error: str(error)[:40])
def test_a_failed_pass_leaves_nothing_in_memory(error, no_collection):
    model = chain()
    failing = Failing(model, error, passes=3)
    model.forward = failing
    scheduler = Scheduler(model)
    handles = [scheduler.submit(chain_request(seed=seed, max_new_tokens=12)) for seed in range(2)]
    runs = [fold(handle) for handle in handles]
    for run in runs:
        assert run.ended.reason == "failed"
        assert "this machine has too little memory" in run.ended.message
        assert run.steps, "tokens so far are kept"
    assert len(failing.held) > 3
    assert [one() for one in failing.held] == [None] * len(failing.held)


def test_a_cache_that_cannot_grow_leaves_nothing_in_memory(twins, monkeypatch, no_collection):
    model = twins("llama").ours  # before its checks would meet the error
    grow, caches, growths = TreeCache.grow, [], 0

    def fails_later(cache, more):
        nonlocal growths
        caches.append(weakref.ref(cache))
        growths += 1
        if growths > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return grow(cache, more)

    monkeypatch.setattr(TreeCache, "grow", fails_later)
    scheduler = Scheduler(model)
    events = list(scheduler.submit(Request(PROMPT, BASE)))
    assert isinstance(events[-1], RunEnded)
    assert events[-1].reason == "failed"
    assert [one() for one in caches] == [None] * len(caches)


def test_an_error_that_the_device_reports_late_ends_only_the_runs_of_the_pass(monkeypatch):
    """A CUDA kernel fails after its call has returned, and reading the clock reports it first."""
    scheduler = Scheduler(chain())
    handles = [scheduler.submit(chain_request(seed=seed, max_new_tokens=12)) for seed in range(2)]
    scheduler.step()

    def fails(watch):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with monkeypatch.context() as patched:
        patched.setattr(Stopwatch, "seconds", property(fails))
        scheduler.step()
    assert [str(handle.error) for handle in handles] == [
        "CUDA error: an illegal memory access was encountered"
    ] * 2
    assert not scheduler.busy
    later = fold(scheduler.submit(chain_request(seed=5, max_new_tokens=4)))
    assert later.ended.reason == "finished"
