"""Captured passes, without a GPU: a pass is traced into its bare tensor operations, as a CUDA graph records them.

The trace holds no Python: what a pass took from the cache's books while it was traced is frozen in it, and what waits
for a tensor's value cannot be traced. So runs on replayed traces equal plain runs only if each pass finds all that
changes in its frame. What a GPU adds (streams, memory pools) is tested by test_gpu.py.
"""

import gc
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from test_engine_equality import EXACT, PROMPT, assert_leaves_match
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from eab.caches.frame import ALIGNED, MOST_FRAMES
from eab.caches.tree import TreeCache
from eab.config import BranchingConfig
from eab.engine import generate
from eab.events import Event, KvMeasured, RowsAllocated, StepTimed
from eab.models.captured import Capture, CapturedPasses, Replay
from eab.models.huggingface import HuggingFaceModel
from eab.models.loading import wrap_model
from eab.run import fold

MEASURED = (RowsAllocated, KvMeasured, StepTimed)


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


@pytest.fixture
def tracer() -> Tracer:
    return Tracer()


@pytest.fixture
def capturing(twins, words) -> Callable[[str, Capture], HuggingFaceModel]:
    """A model on the CPU whose books are those of one on a GPU."""

    def make(family: str, capture: Capture) -> HuggingFaceModel:
        model = wrap_model(deepcopy(twins(family).plain), words, family)
        model.kv_shape = replace(model.kv_shape, counts_as="cuda")
        model._captured = CapturedPasses(lambda: capture)
        return model

    return make


def decisions(events: list[Event]) -> list[Event]:
    return [event for event in events[1:] if not isinstance(event, MEASURED)]


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2", "gpt_neox"])
@pytest.mark.parametrize(
    "settings",
    [
        {"max_paths": 1, "entropy_threshold": 20.0, "r": 4},
        {"max_paths": 6, "entropy_threshold": 1.5, "r": 8},
        {"max_paths": 6, "entropy_threshold": 2.5, "r": 16, "drafter": "sibling-lookup", "draft_length": 2},
        {"policy": "independent", "max_paths": 5, "r": 64},
    ],
)
def test_replayed_passes_make_the_same_run(capturing, twins, tracer, family, settings):
    config = BranchingConfig(max_new_tokens=24, attention="padded", **settings)
    events = list(generate(capturing(family, tracer.capture), PROMPT, config))
    assert tracer.replayed > tracer.traced + 3
    assert decisions(events) == decisions(list(generate(twins(family).ours, PROMPT, config)))
    assert_leaves_match(fold(events), twins(family).plain, EXACT)


def test_a_pass_is_captured_when_its_size_comes_again_and_anew_when_the_tensors_grow(capturing, tracer):
    config = BranchingConfig(max_paths=1, entropy_threshold=20.0, max_new_tokens=13, r=4, attention="padded")
    model = capturing("llama", tracer.capture)
    events = list(generate(model, PROMPT, config))
    growths = [event for event in events if isinstance(event, RowsAllocated)]
    assert len(growths) == 4, "the prompt, and three times four of the twelve tokens that are read"
    assert tracer.traced == 3, "of each four passes the first is only read, the second also captured"
    assert tracer.replayed == 9, "once to see that it says the same, then for the third and the fourth"
    gc.collect()
    assert not model._captured._replays, "they go with the tensors"


def test_sliced_passes_are_not_captured(capturing, tracer):
    list(generate(capturing("llama", tracer.capture), PROMPT, BranchingConfig(max_new_tokens=8)))
    assert tracer.traced == 0


def waits(read: Callable[[], Tensor]) -> Replay:
    raise RuntimeError("operation not permitted when stream is capturing")


def says_otherwise(read: Callable[[], Tensor]) -> Replay:
    logits = read()
    return lambda: logits + 1.0


@pytest.mark.parametrize(("capture", "reason"), [(waits, "not permitted"), (says_otherwise, "says otherwise")])
def test_what_cannot_be_captured_is_read_and_the_log_says_so_once(capturing, twins, caplog, capture, reason):
    config = BranchingConfig(max_new_tokens=16, max_paths=4, r=8, attention="padded")
    events = list(generate(capturing("llama", capture), PROMPT, config))
    assert decisions(events) == decisions(list(generate(twins("llama").ours, PROMPT, config)))
    assert [reason in message for message in caplog.messages] == [True]


def test_without_a_free_stream_passes_are_read(capturing, twins):
    model = capturing("llama", waits)
    model._captured = CapturedPasses(lambda: None)
    config = BranchingConfig(max_new_tokens=8, r=8, attention="padded")
    assert_leaves_match(fold(generate(model, PROMPT, config)), twins("llama").plain, EXACT)


def test_logits_of_one_pass_are_not_overwritten_by_the_next(capturing, tracer):
    model = capturing("llama", tracer.capture)
    cache = TreeCache(model.kv_shape, 16, 2**40, padded=True)
    with torch.inference_mode():
        model.forward([cache.pack([0], [[5, 9, 33]])])
        found = [model.forward([cache.pack([0], [[token]])]) for token in (2, 7, 11, 30)]
        kept = [logits.clone() for logits in found]
        model.forward([cache.pack([0], [[4]])])
    assert tracer.replayed == 4
    assert all(torch.equal(logits, before) for logits, before in zip(found, kept, strict=True))
    assert not torch.equal(kept[2], kept[3])


def test_frames_are_for_sizes_that_come_again_and_keep_their_addresses(capturing, tracer):
    cache = TreeCache(capturing("llama", tracer.capture).kv_shape, 512, 2**40, padded=True)
    sizes = range(1, MOST_FRAMES + 2)
    assert all(cache.pack([0], [[5] * size]).frame is None for size in sizes)
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
    framed, plain = (TreeCache(one, 37, 2**40, padded=True) for one in (shape, replace(shape, counts_as="cpu")))
    for cache in (framed, plain):
        cache.pack([0], [[3, 4, 5]])
        cache.fork(0, [1, 2])
        cache.pack([1, 2], [[6], [7]])
    for tokens in ([[8], [9]], [[10], [11]]):
        one, other = framed.pack([1, 2], tokens), plain.pack([1, 2], tokens)
        assert one.frame is not None
        assert other.frame is None
        assert torch.equal(one.ids, other.ids)
        assert torch.equal(one.positions, other.positions)
        assert torch.equal(one.keep, other.keep)
        assert torch.equal(one.frame.rows, plain._rows)
        query = torch.zeros(1, dtype=shape.dtype)
        assert torch.equal(one.frame.mask, plain._mask_for(query, shape.group))
        assert one.frame.mask.stride(0) % ALIGNED == 0
