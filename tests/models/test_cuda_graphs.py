"""Captured passes, without a GPU: a pass is traced into its bare tensor operations, as a CUDA graph
records them.

The trace holds no Python: what a pass took from the cache's books or read from a tensor while it
was traced is frozen in it. So runs on replayed traces equal plain runs only if each pass finds all
that changes in its frame. What a GPU adds (streams, memory pools, waiting for values) is tested by
test_gpu.py.
"""

import gc
from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields, replace
from itertools import zip_longest
from types import SimpleNamespace

import pytest
import torch
from equality import EXACT, PROMPT, assert_leaves_match, decisions
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from eab.caches.shape import KVShape
from eab.caches.static_buffers import ALIGNED, MOST_FRAMES
from eab.caches.tree import TreeCache
from eab.config import BranchingConfig
from eab.engine.build import build
from eab.engine.loop import generate, step
from eab.engine.request import Request
from eab.events import Event, RowsAllocated
from eab.models.cuda_graphs import MOST_FAILURES, Capture, CudaGraphRunner, Replay, _retire
from eab.models.huggingface import HuggingFaceModel
from eab.models.loading import wrap_model
from eab.run import fold


class Tracer:
    """Captures by tracing; counts what was traced and replayed."""

    def __init__(self) -> None:
        self.traced = self.replayed = 0

    def capture(self, read: Callable[[], Tensor]) -> Replay:
        self.traced += 1
        trace = make_fx(read)()
        logits = trace()

        def replay() -> Tensor:
            self.replayed += 1
            return logits.copy_(trace())

        return replay


class InFrames(KVShape):
    """Of a cache on the CPU that keeps its padded passes in frames."""

    @property
    def in_frames(self) -> bool:
        return True


@pytest.fixture
def tracer() -> Tracer:
    return Tracer()


@pytest.fixture
def capturing(twins, words) -> Callable[[str, Capture], HuggingFaceModel]:
    """A model on the CPU whose padded passes are in frames, as on a GPU; `capture` captures them,
    unchecked.
    """

    def make(family: str, capture: Capture) -> HuggingFaceModel:
        model = wrap_model(deepcopy(twins(family).plain), words, family)
        model.kv_shape = InFrames(
            *(getattr(model.kv_shape, field.name) for field in fields(KVShape))
        )
        model._captured = CudaGraphRunner(lambda: capture, model._replays)
        model._captured._checked = True
        return model

    return make


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2", "gpt_neox"])
@pytest.mark.parametrize(
    "settings",
    [
        {"max_paths": 1, "entropy_threshold": 20.0, "r": 8},
        {"max_paths": 6, "entropy_threshold": 1.5, "r": 8},
        {
            "max_paths": 6,
            "entropy_threshold": 2.5,
            "r": 16,
            "drafter": "sibling-lookup",
            "draft_length": 2,
        },
        {"policy": "independent", "max_paths": 5, "r": 64},
    ],
)
def test_replayed_passes_make_the_same_run(capturing, twins, tracer, family, settings):
    config = BranchingConfig(max_new_tokens=24, attention="padded", **settings)
    events = list(generate(capturing(family, tracer.capture), Request(PROMPT, config)))
    assert tracer.replayed > tracer.traced + 3
    assert decisions(events) == decisions(list(generate(twins(family).ours, Request(PROMPT, config))))
    assert_leaves_match(fold(events), twins(family).plain, EXACT)


def test_a_pass_is_captured_when_its_size_keeps_coming_and_anew_when_the_tensors_grow(
    capturing, tracer
):
    config = BranchingConfig(
        max_paths=1, entropy_threshold=20.0, max_new_tokens=13, r=4, attention="padded"
    )
    model = capturing("llama", tracer.capture)
    events = list(generate(model, Request(PROMPT, config)))
    growths = [event for event in events if isinstance(event, RowsAllocated)]
    assert len(growths) == 4, "the prompt, and three times four of the twelve tokens that are read"
    assert tracer.traced == 3, "of each four passes two are only read, the third is also captured"
    assert tracer.replayed == 6, "once to see that it says the same, then for the fourth"
    gc.collect()
    assert not model._captured._replays, "they go with the tensors"


def test_runs_beside_each_other_each_find_their_own_numbers(capturing, twins, tracer):
    model = capturing("llama", tracer.capture)
    config = BranchingConfig(
        max_new_tokens=14, max_paths=3, entropy_threshold=2.0, r=8, attention="padded"
    )
    seeds = [replace(config, seed=seed) for seed in range(3)]
    runs = list(zip(*zip_longest(*(generate(model, Request(PROMPT, one)) for one in seeds)), strict=True))
    assert tracer.replayed > 9
    for one, events in zip(seeds, runs, strict=True):
        alone = list(generate(twins("llama").ours, Request(PROMPT, one)))
        assert decisions([event for event in events if event is not None]) == decisions(alone)


def test_passes_of_two_runs_in_one_are_read_together(capturing, twins, tracer):
    model = capturing("llama", tracer.capture)
    config = BranchingConfig(
        max_new_tokens=10, max_paths=3, entropy_threshold=2.0, r=8, attention="padded"
    )
    both = [build(model, Request(PROMPT, replace(config, seed=seed)), 2.0) for seed in (1, 2)]
    events: list[list[Event]] = [[one.started] for one in both]
    while all(one.live for one in both):
        for found, new in zip(events, step(model, both), strict=True):
            found += new
    assert tracer.traced == 0
    for found in events:
        assert_leaves_match(fold(found), twins("llama").plain, EXACT)


def test_sliced_passes_are_not_captured(capturing, tracer):
    list(generate(capturing("llama", tracer.capture), Request(PROMPT, BranchingConfig(max_new_tokens=8))))
    assert tracer.traced == 0


def waits(read: Callable[[], Tensor]) -> Replay:
    raise RuntimeError("operation not permitted when stream is capturing")


def says_otherwise(read: Callable[[], Tensor]) -> Replay:
    logits = read()
    return lambda: logits + 1.0


def freezes(read: Callable[[], Tensor]) -> Replay:
    logits = read()
    return lambda: logits


@pytest.mark.parametrize(
    ("capture", "reason"), [(waits, "not permitted"), (says_otherwise, "says otherwise")]
)
def test_what_cannot_be_captured_is_read_and_tried_a_few_times(
    capturing, twins, caplog, capture, reason
):
    config = BranchingConfig(max_new_tokens=30, max_paths=3, r=4, attention="padded")
    events = list(generate(capturing("llama", capture), Request(PROMPT, config)))
    assert decisions(events) == decisions(list(generate(twins("llama").ours, Request(PROMPT, config))))
    assert [reason in message for message in caplog.messages] == [True] * MOST_FAILURES


def test_one_failure_takes_the_graphs_of_its_era_along_and_no_others(
    capturing, twins, tracer, caplog
):
    captures = iter([tracer.capture, waits])
    model = capturing("llama", lambda read: next(captures, tracer.capture)(read))
    cache, text = TreeCache(model.kv_shape, 64, 2**40, padded=True), []

    @torch.inference_mode()
    def read(times: int, *tokens: int) -> Tensor:
        for _ in range(times):
            text.extend(tokens)
            logits = model.forward([cache.pack([0], [list(tokens)])])
        return logits[-1]

    read(4, 7)
    assert (tracer.traced, tracer.replayed) == (1, 2)
    read(3, 9, 11)
    assert "not permitted" in caplog.text
    said = read(1, 7)
    assert tracer.replayed == 2, "its graph went with the one that failed"
    assert torch.allclose(
        said, twins("llama").plain(torch.tensor([text])).logits[0, -1], atol=EXACT
    )
    cache._grow(8)
    read(4, 7)
    assert (tracer.traced, tracer.replayed) == (2, 4)


def test_replays_are_checked_on_new_numbers_before_the_first_run(capturing, twins, caplog):
    model = capturing("llama", freezes)
    model._captured = CudaGraphRunner(lambda: freezes, model._replays)
    config = BranchingConfig(max_new_tokens=8, r=8, attention="padded")
    assert_leaves_match(fold(generate(model, Request(PROMPT, config))), twins("llama").plain, EXACT)
    assert 1 <= len(caplog.messages) <= MOST_FAILURES
    assert all("replays say otherwise than the model" in message for message in caplog.messages)


def breaks() -> bool:
    raise RuntimeError("out of memory")


def test_a_check_that_breaks_breaks_no_run(capturing, twins, tracer, caplog):
    model = capturing("llama", tracer.capture)
    model._captured = CudaGraphRunner(lambda: tracer.capture, breaks)
    config = BranchingConfig(max_new_tokens=30, max_paths=3, r=4, attention="padded")
    assert_leaves_match(fold(generate(model, Request(PROMPT, config))), twins("llama").plain, EXACT)
    assert tracer.traced == 0
    assert ["out of memory" in message for message in caplog.messages] == [True] * MOST_FAILURES


def test_a_check_without_a_replay_proves_nothing(capturing, twins, caplog):
    model, free = (
        capturing("llama", freezes),
        iter([None]),
    )  # no stream for the check, then as many as one likes
    model._captured = CudaGraphRunner(lambda: next(free, freezes), model._replays)
    config = BranchingConfig(max_new_tokens=30, max_paths=3, r=4, attention="padded")
    assert_leaves_match(fold(generate(model, Request(PROMPT, config))), twins("llama").plain, EXACT)
    assert len(caplog.messages) == MOST_FAILURES


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2", "gpt_neox"])
def test_good_replays_pass_the_check(capturing, tracer, family):
    assert capturing(family, tracer.capture)._replays()
    assert (tracer.traced, tracer.replayed) == (1, 3)


def test_without_a_free_stream_passes_are_read(capturing, twins):
    model = capturing("llama", waits)
    model._captured = CudaGraphRunner(lambda: None, lambda: True)
    config = BranchingConfig(max_new_tokens=8, r=8, attention="padded")
    assert_leaves_match(fold(generate(model, Request(PROMPT, config))), twins("llama").plain, EXACT)


def test_a_stream_is_free_again_when_all_its_graphs_are_reset():
    done: list[str] = []
    graphs = [SimpleNamespace(reset=lambda name=name: done.append(name)) for name in "ab"]
    _retire(graphs, "stream", free=done)
    assert done == ["a", "b", "stream"]


def test_logits_of_one_pass_are_not_overwritten_by_the_next(capturing, tracer):
    model = capturing("llama", tracer.capture)
    cache = TreeCache(model.kv_shape, 16, 2**40, padded=True)
    with torch.inference_mode():
        model.forward([cache.pack([0], [[5, 9, 33]])])
        found = [model.forward([cache.pack([0], [[token]])]) for token in (2, 7, 11, 30, 8)]
        kept = [logits.clone() for logits in found]
        model.forward([cache.pack([0], [[4]])])
    assert tracer.replayed == 4, "one to see, and three"
    assert all(torch.equal(logits, before) for logits, before in zip(found, kept, strict=True))
    assert not torch.equal(kept[3], kept[4])


def test_frames_are_for_sizes_that_keep_coming_and_keep_their_addresses(capturing, tracer):
    cache = TreeCache(capturing("llama", tracer.capture).kv_shape, 512, 2**40, padded=True)
    sizes = range(1, MOST_FRAMES + 2)
    assert all(cache.pack([0], [[5] * size]).frame is None for size in [*sizes, *sizes])
    frames = [cache.pack([0], [[5] * size]).frame for size in sizes]
    assert [frame is None for frame in frames] == [False] * MOST_FRAMES + [True]
    for size, frame in zip(sizes, frames, strict=True):
        again = cache.pack([0], [[5] * size])
        assert again.frame is frame
        assert frame is None or again.ids.data_ptr() == frame.ids.data_ptr()
    cache._grow(1)
    assert cache.pack([0], [[5]]).frame is None, "new tensors, new frames"


def test_a_frame_shows_what_the_plain_pass_shows(capturing, tracer):
    shape = capturing("llama", tracer.capture).kv_shape
    framed, plain = (TreeCache(shape, 37, 2**40, padded=True) for _ in range(2))
    plain._frame_for = lambda tokens, wanted: None
    for cache in (framed, plain):
        cache.pack([0], [[3, 4, 5]])
        cache.fork(0, [1, 2])
        for token in (6, 7):
            cache.pack([1, 2], [[token], [token + 1]])
    for tokens in ([[8], [9]], [[10], [11]]):
        one, other = framed.pack([1, 2], tokens), plain.pack([1, 2], tokens)
        assert one.frame is not None
        assert other.frame is None
        assert torch.equal(one.ids, other.ids)
        assert torch.equal(one.positions, other.positions)
        assert torch.equal(one.keep, other.keep)
        assert torch.equal(one.frame.rows, plain._rows)
        assert torch.equal(
            one.frame.mask, plain._mask_for(torch.zeros(1, dtype=shape.dtype), shape.group)
        )
        assert one.frame.mask.stride(0) % ALIGNED == 0
