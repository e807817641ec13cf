"""The engine on CUDA says what it says on the CPU. `pytest -m gpu`; skipped where there is no GPU."""

import gc
from copy import deepcopy
from dataclasses import replace
from itertools import zip_longest

import pytest
import torch
from test_engine_equality import EXACT, PROMPT, assert_leaves_match

from eab.comparison import CACHES
from eab.config import BranchingConfig
from eab.engine import generate
from eab.models.captured import STREAMS, _free_streams
from eab.models.loading import load_model, wrap_model
from eab.run import fold

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2"])
def test_every_leaf_equals_the_plain_model_on_the_cpu(twins, words, family, cache):
    on_gpu = wrap_model(deepcopy(twins(family).plain).to("cuda"), words, family)
    config = BranchingConfig(max_new_tokens=14, entropy_threshold=1.5, max_paths=12, r=3, cache=cache)
    run = fold(generate(on_gpu, PROMPT, config))
    assert len(run.leaves()) > 1
    assert_leaves_match(run, twins(family).plain, EXACT)


@pytest.mark.parametrize(
    "settings", [{"max_paths": 1, "entropy_threshold": 20.0}, {"max_paths": 6, "entropy_threshold": 1.5}]
)
def test_captured_passes_are_replayed_and_say_what_the_plain_model_says(twins, words, settings):
    on_gpu = wrap_model(deepcopy(twins("llama").plain).to("cuda"), words, "llama")
    captured = on_gpu._captured
    assert captured is not None
    config = BranchingConfig(max_new_tokens=40, r=8, attention="padded", **settings)
    events, most = [], 0
    for event in generate(on_gpu, PROMPT, config):
        events.append(event)
        most = max(most, len(captured._replays))
    assert most > 0, "passes were replayed"
    assert captured._works
    assert_leaves_match(fold(events), twins("llama").plain, EXACT)
    gc.collect()
    assert not captured._replays, "graphs go with their cache"
    assert len(_free_streams(on_gpu.kv_shape.device)) == STREAMS


def test_many_captured_runs_beside_each_other_and_after_each_other(twins, words):
    on_gpu = wrap_model(deepcopy(twins("llama").plain).to("cuda"), words, "llama")
    config = BranchingConfig(max_new_tokens=30, r=4, attention="padded", max_paths=4, entropy_threshold=1.5)
    for _ in range(3):
        runs = [generate(on_gpu, PROMPT, replace(config, seed=seed)) for seed in range(STREAMS + 2)]
        collected = [list(events) for events in zip_longest(*runs)]  # step by step, in turn
        for run in zip(*collected, strict=True):
            events = [event for event in run if event is not None]
            assert_leaves_match(fold(events), twins("llama").plain, EXACT)
    assert on_gpu._captured is not None
    assert on_gpu._captured._works


def test_a_model_is_loaded_onto_the_gpu_in_bfloat16_by_itself():
    model = load_model("embedded")
    assert (model.card.dtype, model.kv_shape.device.type) == ("bfloat16", "cuda")
    run = fold(generate(model, "Once upon a time", BranchingConfig(max_new_tokens=20)))
    assert run.ended is not None
    assert run.ended.reason == "finished"
    assert sum(leaf.weight for leaf in run.leaves()) == pytest.approx(1.0, abs=1e-6)
