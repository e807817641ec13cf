"""CUDA graphs, tested without a GPU: a forward pass is traced into its tensor operations, which are
what a CUDA graph records.

A trace contains no Python. What a forward pass took from the cache's bookkeeping, or read from a
tensor, is constant in its trace. So runs on replayed traces equal plain runs only if everything
that changes between batches is in static buffers. What a GPU adds (streams, memory pools,
synchronisation) is tested by test_gpu.py.
"""

import gc
from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields, replace
from itertools import product, zip_longest
from types import SimpleNamespace

import pytest
import torch
from equality import EXACT, PROMPT, assert_leaves_match, decisions
from family_table import BY_NAME
from made_runs import events_of, run_of
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from eab.config import BranchingConfig
from eab.engine.caches.attention import MASK_ALIGNMENT
from eab.engine.caches.kv_pool import MAX_BUFFERS
from eab.engine.caches.shape import KVShape
from eab.engine.caches.tree import TreeCache
from eab.engine.loop import event_stream
from eab.engine.models.cuda_graphs import (
    MAX_FAILURES,
    Capture,
    CudaGraphRunner,
    Replay,
    _reset_graphs,
)
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.models.weights import store_weights
from eab.engine.request import Request
from eab.engine.scheduler import Scheduler
from eab.run import fold
from eab.run.events import RowsAllocated
from eab.weight_formats import AS_LOADED, PLAIN

pytestmark = pytest.mark.slow

PADDED = BranchingConfig(attention="padded", max_new_tokens=14, entropy_threshold=1.5, r=8)
FAMILIES = ["llama", "gpt2"]
SETTINGS = {
    "one path": {"max_paths": 1, "entropy_threshold": 20.0},
    "forks": {"max_paths": 6},
    "drafts": {"max_paths": 6, "entropy_threshold": 2.5, "r": 16}
    | {"drafter": "sibling-lookup", "draft_length": 2},
    "independent": {"policy": "independent", "max_paths": 5, "r": 64},
}


class Tracer:
    """Captures by tracing; counts traces and replays."""

    def __init__(self) -> None:
        self.traced = self.replayed = 0

    def capture(self, forward: Callable[[], Tensor]) -> Replay:
        self.traced += 1
        trace = make_fx(forward)()
        logits = trace()

        def replay() -> Tensor:
            self.replayed += 1
            return logits.copy_(trace())

        return replay


class StaticShape(KVShape):
    """The shape of a cache on the CPU that uses static buffers for padded batches."""

    @property
    def uses_static_buffers(self) -> bool:
        return True


def captured(model: HuggingFaceModel, capture: Capture) -> HuggingFaceModel:
    """Make the model's padded batches use static buffers, and capture them unverified."""
    model.kv_shape = StaticShape(
        *(getattr(model.kv_shape, field.name) for field in fields(KVShape))
    )
    model._graph_runner = CudaGraphRunner(lambda: capture, model._replays_agree)
    model._graph_runner._verified = True
    return model


@pytest.fixture
def tracer() -> Tracer:
    return Tracer()


@pytest.fixture
def capturing(twins, words) -> Callable[[str, Capture], HuggingFaceModel]:
    """capturing(family, capture) -> a model on the CPU whose padded batches use static buffers, as
    on a GPU; `capture` captures them without verification.
    """

    def make(family: str, capture: Capture, weights: str = AS_LOADED) -> HuggingFaceModel:
        plain = deepcopy(twins(family).plain)
        model = HuggingFaceModel(plain, words, family, store_weights(plain, weights, PLAIN))
        return captured(model, capture)

    return make


def test_replays_with_a_weight_format_of_gpus_give_the_same_run(capturing, twins, words, tracer):
    config, weights = replace(PADDED, max_paths=6), "nf4-double-quant"
    plain = deepcopy(twins("llama").plain)
    uncaptured = HuggingFaceModel(plain, words, "llama", store_weights(plain, weights, PLAIN))
    found = events_of(capturing("llama", tracer.capture, weights), PROMPT, config)
    assert tracer.replayed > tracer.traced + 3
    assert decisions(found) == decisions(events_of(uncaptured, PROMPT, config))


@pytest.mark.parametrize(
    ("settings", "family"),
    [*product(["forks"], FAMILIES), *product(["one path", "drafts", "independent"], ["qwen2"])],
)
def test_replays_give_the_same_run(capturing, twins, tracer, family, settings):
    config = replace(PADDED, **SETTINGS[settings])
    events = events_of(capturing(family, tracer.capture), PROMPT, config)
    assert tracer.replayed > tracer.traced + 3
    assert decisions(events) == decisions(events_of(twins(family).ours, PROMPT, config))
    assert_leaves_match(fold(events), twins(family).plain, EXACT)


@pytest.mark.parametrize("name", ["Mistral", "Gemma 4", "gpt-oss"])
def test_replays_with_layers_that_differ_give_the_same_run(words, tracer, name):
    model = HuggingFaceModel(BY_NAME[name].model(), words, name)
    config = replace(PADDED, attention="sliced", max_paths=6, temperature=3.0)
    expected = run_of(model, PROMPT, config).samples
    captured(model, tracer.capture)
    samples = run_of(model, PROMPT, config, attention="padded").samples
    assert tracer.replayed > tracer.traced
    assert [sample.token_ids for sample in samples] == [sample.token_ids for sample in expected]


def test_a_batch_size_is_captured_when_it_recurs_and_again_when_the_tensors_grow(capturing, tracer):
    config = replace(PADDED, max_paths=1, entropy_threshold=20.0, max_new_tokens=13, r=4)
    model = capturing("llama", tracer.capture)
    events_of(model, PROMPT, config, attention="sliced")
    assert tracer.traced == 0, "sliced batches are not captured"
    events = events_of(model, PROMPT, config)
    growths = [event for event in events if isinstance(event, RowsAllocated)]
    assert len(growths) == 4, "the prompt, and three times four of the twelve processed tokens"
    assert tracer.traced == 3, "of each four batches, two are only run, the third is captured, too"
    assert tracer.replayed == 6, "once to check it, then for the fourth"
    gc.collect()
    assert not model._graph_runner._replays, "they are discarded with the tensors"


def test_concurrent_runs_each_use_their_own_inputs(capturing, twins, tracer):
    model = capturing("llama", tracer.capture)
    seeds = [replace(PADDED, max_paths=3, seed=seed) for seed in range(3)]
    streams = [event_stream(model, Request(PROMPT, one)) for one in seeds]
    runs = zip(*zip_longest(*streams), strict=True)
    for one, events in zip(seeds, runs, strict=True):
        alone = events_of(twins("llama").ours, PROMPT, one)
        assert decisions([event for event in events if event is not None]) == decisions(alone)
    assert tracer.replayed > 9


def test_batches_of_two_runs_share_one_forward_pass(capturing, twins, tracer):
    model = capturing("llama", tracer.capture)
    config, scheduler = replace(PADDED, max_new_tokens=8, max_paths=3), Scheduler(model)
    both = [scheduler.submit(Request(PROMPT, replace(config, seed=seed))) for seed in (1, 2)]
    while not any(one.ended for one in both):
        scheduler.step()
    assert tracer.traced == 0
    for one in both:
        assert_leaves_match(fold(one.new_events()), twins("llama").plain, EXACT)


def synchronises(forward: Callable[[], Tensor]) -> Replay:
    raise RuntimeError("operation not permitted when stream is capturing")


def disagrees(forward: Callable[[], Tensor]) -> Replay:
    logits = forward()
    return lambda: logits + 1.0


def freezes(forward: Callable[[], Tensor]) -> Replay:
    logits = forward()
    return lambda: logits


@pytest.mark.parametrize(
    ("capture", "reason"), [(synchronises, "not permitted"), (disagrees, "disagrees")]
)
def test_a_failing_capture_runs_uncaptured_and_is_retried_a_few_times(
    capturing, twins, caplog, capture, reason
):
    config = replace(PADDED, max_new_tokens=30, max_paths=3, r=4)
    events = events_of(capturing("llama", capture), PROMPT, config)
    assert decisions(events) == decisions(events_of(twins("llama").ours, PROMPT, config))
    assert [reason in message for message in caplog.messages] == [True] * MAX_FAILURES


def test_one_failure_discards_the_graphs_of_its_epoch_only(capturing, twins, tracer, caplog):
    captures = iter([tracer.capture, synchronises])
    model = capturing("llama", lambda forward: next(captures, tracer.capture)(forward))
    cache, text = TreeCache(model.kv_shape, 64, 2**40, padded=True), []

    @torch.inference_mode()
    def run(times: int, *tokens: int) -> Tensor:
        for _ in range(times):
            text.extend(tokens)
            logits = model.forward([cache.prepare([0], [list(tokens)])])
        return logits[-1]

    run(4, 7)
    assert (tracer.traced, tracer.replayed) == (1, 2)
    run(3, 9, 11)
    assert "not permitted" in caplog.text
    logits = run(1, 7)
    assert tracer.replayed == 2, "its graph was discarded with the one that failed"
    expected = twins("llama").plain(torch.tensor([text])).logits[0, -1]
    assert torch.allclose(logits, expected, atol=EXACT)
    cache.grow(8)
    run(4, 7)
    assert (tracer.traced, tracer.replayed) == (2, 4)


def breaks() -> bool:
    raise RuntimeError("out of memory")


@pytest.mark.parametrize(
    ("streams", "verify", "said"),
    [
        ([freezes], None, "replays disagree with the model"),  # on new inputs
        ([freezes], breaks, "out of memory"),
        ([None, freezes], None, "replays disagree with the model"),  # no replay, no verification
        ([None], lambda: True, "nothing was replayed"),  # never a free stream
    ],
)
def test_a_run_whose_replays_are_not_verified_is_right(
    capturing, twins, caplog, streams, verify, said
):
    """What captures at first, and then always; how replays are verified; and what is logged."""
    model, some = capturing("llama", freezes), iter(streams[:-1])
    model._graph_runner = CudaGraphRunner(
        lambda: next(some, streams[-1]), verify or model._replays_agree
    )
    config = replace(PADDED, max_new_tokens=30, max_paths=3, r=4)
    assert_leaves_match(run_of(model, PROMPT, config), twins("llama").plain, EXACT)
    assert len(caplog.messages) == MAX_FAILURES
    assert all(said in message for message in caplog.messages)
    done: list[str] = []
    graphs = [SimpleNamespace(reset=lambda name=name: done.append(name)) for name in "ab"]
    _reset_graphs(graphs, "stream", free=done)
    assert done == ["a", "b", "stream"], "a stream is free again once all its graphs are reset"


@pytest.mark.parametrize("family", FAMILIES)
def test_correct_replays_pass_the_verification(capturing, tracer, family):
    assert capturing(family, tracer.capture)._replays_agree()
    assert (tracer.traced, tracer.replayed) == (1, 3)


def test_logits_of_one_batch_are_not_overwritten_by_the_next(capturing, tracer):
    model = capturing("llama", tracer.capture)
    cache = TreeCache(model.kv_shape, 16, 2**40, padded=True)
    with torch.inference_mode():
        model.forward([cache.prepare([0], [[5, 9, 33]])])
        found = [model.forward([cache.prepare([0], [[token]])]) for token in (2, 7, 11, 30, 8)]
        kept = [logits.clone() for logits in found]
        model.forward([cache.prepare([0], [[4]])])
    assert tracer.replayed == 4, "once to check it, and three times"
    assert all(torch.equal(logits, before) for logits, before in zip(found, kept, strict=True))
    assert not torch.equal(kept[3], kept[4])


def test_static_buffers_are_for_recurring_sizes_and_keep_their_addresses(capturing, tracer):
    cache = TreeCache(capturing("llama", tracer.capture).kv_shape, 4096, 2**40, padded=True)
    sizes = range(1, MAX_BUFFERS + 2)
    for size in [*sizes, *sizes]:
        assert cache.prepare([0], [[5] * size]).static_buffers is None
    buffers = [cache.prepare([0], [[5] * size]).static_buffers for size in sizes]
    assert [one is None for one in buffers] == [False] * MAX_BUFFERS + [True]
    for size, one in zip(sizes, buffers, strict=True):
        again = cache.prepare([0], [[5] * size])
        assert again.static_buffers is one
        assert one is None or again.ids.data_ptr() == one.ids.data_ptr()
        assert one is None or one.masks[0].stride(0) % MASK_ALIGNMENT == 0
    cache.grow(1)
    assert cache.prepare([0], [[5]]).static_buffers is None, "new tensors, new buffers"
