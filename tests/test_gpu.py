"""The engine on CUDA says what it says on the CPU. `pytest -m gpu`; skipped where there is no GPU."""

from copy import deepcopy

import pytest
import torch
from test_engine_equality import EXACT, PROMPT, assert_leaves_match

from eab.comparison import CACHES
from eab.config import BranchingConfig
from eab.engine import generate
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


def test_a_model_is_loaded_onto_the_gpu_in_bfloat16_by_itself():
    model = load_model("embedded")
    assert (model.card.dtype, model.kv_shape.device.type) == ("bfloat16", "cuda")
    run = fold(generate(model, "Once upon a time", BranchingConfig(max_new_tokens=20)))
    assert run.ended is not None
    assert run.ended.reason == "finished"
    assert sum(leaf.weight for leaf in run.leaves()) == pytest.approx(1.0, abs=1e-6)
