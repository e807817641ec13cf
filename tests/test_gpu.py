"""The engine on CUDA gives the results of the CPU. Run with `pytest -m gpu`; skipped without a GPU.

Norms and rotary angles are computed in float32 whatever the model's dtype, and a GPU rounds them
differently from a CPU.
"""

import gc
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from itertools import zip_longest

import pytest
import torch
from equality import PROMPT, assert_leaves_match, decisions
from made_runs import run_of
from transformers import LlamaConfig, LlamaForCausalLM

from eab.config import BranchingConfig
from eab.engine.handle import OUT_OF_MEMORY
from eab.engine.loop import event_stream
from eab.engine.models.cuda_graphs import STREAMS, _free_streams
from eab.engine.models.loading import load_model, wrap_model
from eab.engine.request import Request
from eab.engine.scheduler import Scheduler
from eab.errors import ModelError
from eab.labs.variants import CACHES
from eab.run import fold
from eab.run.events import KvMeasured

# Tolerances in nats. The twins are float64; narrower weights and other kernels round more.
NEAR = {torch.float64: 1e-4, torch.float32: 1e-3, torch.bfloat16: 0.6, torch.float16: 0.1}
ROOM = 64 * 2**20  # bytes: enough for SMALL, and for the first steps of LARGE
LARGE = BranchingConfig(
    max_new_tokens=200, max_paths=128, entropy_threshold=0.1, min_fork_weight=0.0
)
SMALL = BranchingConfig(max_new_tokens=40, max_paths=2)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2"])
def test_every_leaf_equals_the_plain_model_on_the_cpu(twins, words, family, cache, dtype):
    on_gpu = wrap_model(deepcopy(twins(family).plain).to("cuda", dtype), words, family)
    assert on_gpu.card.own_decoder == (family != "gpt2")
    settings = {"max_new_tokens": 14, "entropy_threshold": 1.5, "max_paths": 12, "r": 3}
    run = run_of(on_gpu, PROMPT, cache=cache, **settings)
    assert len(run.leaves()) > 1
    rounded = deepcopy(twins(family).plain).to(dtype).to(torch.float64)
    assert_leaves_match(run, rounded, NEAR[dtype])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2", "gpt_neox"])
@pytest.mark.parametrize(
    "settings",
    [
        {"max_paths": 1, "entropy_threshold": 20.0},
        {"max_paths": 6, "entropy_threshold": 1.5},
        {"max_paths": 6, "entropy_threshold": 2.5, "drafter": "sibling-lookup", "draft_length": 2},
    ],
)
def test_cuda_graphs_are_replayed_and_give_the_same_run(twins, words, family, settings, dtype):
    on_gpu = wrap_model(deepcopy(twins(family).plain).to("cuda", dtype), words, family)
    runner = on_gpu._graph_runner
    assert runner is not None
    config = BranchingConfig(max_new_tokens=40, r=13, **settings)
    events = list(event_stream(on_gpu, Request(PROMPT, config)))
    captured, replayed = len(runner._replays), runner._replay_count
    assert captured > 0, "graphs were captured"
    again = list(event_stream(on_gpu, Request(PROMPT, config)))
    assert decisions(again) == decisions(events)
    assert runner._replay_count - replayed > replayed, "and are there for the next run"
    assert runner._failures == 0
    on_gpu.kv_pool.clear()
    gc.collect()
    assert not runner._replays, "graphs are discarded with their tensors"
    on_gpu._graph_runner = None
    assert decisions(events) == decisions(list(event_stream(on_gpu, Request(PROMPT, config))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_replays_in_narrow_dtypes_agree_with_the_plain_model(twins, words, dtype):
    on_gpu = wrap_model(deepcopy(twins("llama").plain).to("cuda", dtype), words, "llama")
    assert on_gpu._replays_agree()
    assert on_gpu._graph_runner._failures == 0


def test_many_captured_runs_are_right_when_interleaved_and_when_repeated(twins, words):
    on_gpu = wrap_model(deepcopy(twins("llama").plain).to("cuda"), words, "llama")
    runner, free = on_gpu._graph_runner, _free_streams(on_gpu.kv_shape.device)
    assert runner is not None
    config = BranchingConfig(max_new_tokens=30, r=8, max_paths=4, entropy_threshold=1.5)
    requests = [Request(PROMPT, replace(config, seed=seed)) for seed in range(STREAMS + 2)]
    for _ in range(3):
        runs, most, collected = [event_stream(on_gpu, one) for one in requests], 0, []
        for events in zip_longest(*runs):  # one event of each run in turn
            collected.append(events)
            most = max(most, len(runner._replays))
        assert most > 1
        for events in zip(*collected, strict=True):
            run = fold(event for event in events if event is not None)
            assert_leaves_match(run, twins("llama").plain, NEAR[torch.float64])
        del runs
        gc.collect()
        assert len(free) == STREAMS - len({buffers.epoch for buffers in runner._replays})
    on_gpu.kv_pool.clear()
    gc.collect()
    assert len(free) == STREAMS
    assert runner._failures == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_our_decoder_is_used_for_a_deep_model(words, dtype):
    """What 30 layers and a real width round is within the tolerances of the checks at loading."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=5000,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
    )
    model = wrap_model(LlamaForCausalLM(config).to("cuda", dtype), words, "deep")
    assert model.card.own_decoder


def test_a_model_is_loaded_onto_the_gpu_in_bfloat16_by_default():
    model = load_model("embedded")
    assert (model.card.dtype, model.kv_shape.device.type) == ("bfloat16", "cuda")
    run = fold(event_stream(model, Request("Once upon a time", BranchingConfig(max_new_tokens=20))))
    assert run.ended.reason == "finished"
    assert sum(leaf.weight for leaf in run.leaves()) == pytest.approx(1.0, abs=1e-6)


@pytest.fixture
def little_memory() -> Iterator[Callable[[], None]]:
    """A function that limits PyTorch to a little more GPU memory than it already holds."""

    def limit() -> None:
        gc.collect()
        torch.cuda.empty_cache()
        allowed = torch.cuda.memory_reserved() + ROOM
        torch.cuda.set_per_process_memory_fraction(allowed / torch.cuda.mem_get_info()[1])

    yield limit
    torch.cuda.set_per_process_memory_fraction(1.0)


def test_a_run_out_of_memory_fails_alone_with_a_message_and_its_memory_is_freed(little_memory):
    model = load_model("embedded", "cuda", "float32")
    list(event_stream(model, Request("Once upon a time", SMALL)))  # one-time library allocations
    model.kv_pool.clear()
    gc.collect()
    little_memory()
    before = torch.cuda.memory_allocated()
    scheduler = Scheduler(model)
    large, small = (scheduler.submit(Request("Once upon a time", one)) for one in (LARGE, SMALL))
    runs = [fold(large), fold(small)]
    assert [run.ended and run.ended.reason for run in runs] == ["failed", "finished"]
    assert runs[0].ended.message == OUT_OF_MEMORY
    assert runs[0].steps, "tokens so far are kept"
    model.kv_pool.clear()
    gc.collect()
    assert torch.cuda.memory_allocated() == before
    after = fold(event_stream(model, Request("Once upon a time", SMALL)))
    assert after.ended.reason == "finished"


def test_a_model_that_does_not_fit_is_refused_with_a_message(little_memory):
    little_memory()
    torch.cuda.set_per_process_memory_fraction(1e-6)
    with pytest.raises(ModelError, match="does not fit into the memory of the device cuda"):
        load_model("embedded", "cuda", "float32")


def test_the_bytes_of_a_run_are_those_of_the_allocator():
    """The KV tensors are most of what a decode step allocates; the ledger counts all of them."""
    model = load_model("embedded", "cuda", "float32")
    model.kv_pool = None  # it keeps the tensors before each growth
    config = BranchingConfig(max_new_tokens=200, max_paths=32, min_fork_weight=0.0, r=64)
    events = event_stream(model, Request("Once upon a time", config))
    before, growths = torch.cuda.memory_allocated(), []
    for event in events:
        if isinstance(event, KvMeasured):
            growths.append((event.usage.bytes_held, torch.cuda.memory_allocated() - before))
    held, allocated = max(growths[:-1])  # the last pass also frees the cache
    # The allocator rounds each tensor up to 512 bytes, and keeps the tensors of the latest pass.
    assert held > 32 * 2**20
    assert held <= allocated <= 1.1 * held + 8 * 2**20
