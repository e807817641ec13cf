"""Decoder layers of Llama's kind in compiled code give what transformers' code gives."""

import copy
import pickle
import weakref
from collections import OrderedDict
from unittest.mock import Mock

import pytest
import torch
from processor import needs_compiled
from tiny_models import tiny, word_tokenizer
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3MLP

from eab.caches.tree import TreeCache
from eab.models import fused_layers
from eab.models.fused_layers import FusedCalls, FusedLayer
from eab.models.huggingface import HuggingFaceModel
from eab.models.quantized import aten, int4, int8, onednn
from eab.models.stored_weights import store_weights

pytestmark = needs_compiled

WIDE = {
    "hidden_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 224,
}
STORED = {"tiled": ("as-loaded", "tiled")}
if int8.products() is not onednn:
    STORED["int8"] = ("int8", "auto")
if int4.products() is not aten:
    STORED["int4"] = ("int4", "auto")
ROOM = 2**30


def engine(kind: str, stored: str, prepare=lambda model: None, **more) -> HuggingFaceModel:
    """An engine's model with large random weights, norms and biases."""
    plain = tiny(kind, spread=0.2, **WIDE | more)
    with torch.no_grad():
        for name, weight in plain.named_parameters():
            if weight.dim() == 1:
                weight.normal_(1.0 if "norm" in name else 0.0, 0.3)
    prepare(plain)
    return HuggingFaceModel(plain, word_tokenizer(), kind, store_weights(plain, *STORED[stored]))


def layers(model: HuggingFaceModel) -> list[nn.Module]:
    return [*model._model.model.layers]


def how_fused(model: HuggingFaceModel) -> list[bool | None]:
    return [getattr(layer, "agrees", None) for layer in layers(model)]


@torch.inference_mode()
def tree_logits(model: HuggingFaceModel, paths: int = 4, only: int | None = None) -> Tensor:
    """Logits of some steps of a tree, (steps, P, V); of one of its paths, if `only` is given."""
    cache = TreeCache(model.kv_shape, 4, ROOM)
    found = [model.forward([cache.prepare([0], [[3, 1, 4, 1, 5]])])]
    cache.fork(0, range(1, paths + 1))
    for step in range(6):
        chosen = [*range(1, paths + 1)] if only is None else [only]
        tokens = [[(7 * path + 11 * step) % 60] for path in chosen]
        found.append(model.forward([cache.prepare(chosen, tokens)]))
    return torch.stack(found[1:])


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("kind", ["LlamaConfig", "MistralConfig", "Qwen2Config", "Qwen3Config"])
def test_the_logits_are_those_of_the_layers_of_transformers(kind, stored, monkeypatch):
    model = engine(kind, stored)
    assert how_fused(model) == [True, True]
    watched = Mock(wraps=fused_layers.cache_attention)
    monkeypatch.setattr(fused_layers, "cache_attention", watched)
    fused = tree_logits(model)
    assert watched.call_count == 7 * 2  # passes times layers
    for layer in layers(model):
        layer.agrees = False
    plain = tree_logits(model)
    assert watched.call_count == 7 * 2
    error = (fused - plain).norm() / plain.norm()
    assert error < (1e-5 if stored == "tiled" else 0.03)


@pytest.mark.parametrize("stored", STORED)
def test_a_path_has_the_same_bits_alone_and_among_others(stored):
    model = engine("LlamaConfig", stored)
    assert how_fused(model) == [True, True]
    together = tree_logits(model)
    for path in (1, 3):
        assert torch.equal(tree_logits(model, only=path)[:, 0], together[:, path - 1])


def test_outside_our_passes_the_code_of_transformers_runs():
    plain = tiny("LlamaConfig", **WIDE)
    ids = torch.tensor([[2, 3, 5, 7, 11]])
    stored = store_weights(plain, "as-loaded", "tiled")
    with torch.inference_mode():
        expected = plain(ids).logits
        HuggingFaceModel(plain, word_tokenizer(), "llama", stored)
        assert all(isinstance(layer, FusedLayer) for layer in plain.model.layers)
        assert torch.equal(plain(ids).logits, expected)


def hook_one(model: nn.Module) -> None:
    model.model.layers[1].mlp.register_forward_hook(lambda *_: None)


def is_right(model: HuggingFaceModel) -> bool:
    """Whether the logits of our pass are those of a pass of transformers."""
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    cache = TreeCache(model.kv_shape, 4, ROOM)
    with torch.inference_mode():
        ours = model.forward([cache.prepare([0], ids.tolist())])
        return torch.allclose(ours[-1], model._model(ids).logits[0, -1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("kind", "prepare", "more", "expected"),
    [
        # These have the modules of Llama, but other code
        ("GraniteConfig", lambda _: None, {"residual_multiplier": 0.5}, [None, None]),
        (
            "SmolLM3Config",
            lambda _: None,
            {"no_rope_layer_interval": 2, "pad_token_id": 0},
            [None, None],
        ),
        ("LlamaConfig", lambda _: None, {"hidden_act": "gelu"}, [None, None]),
        ("LlamaConfig", lambda _: None, {"mlp_bias": True}, [None, None]),
        ("LlamaConfig", lambda _: None, {"attention_bias": True}, [None, None]),
        ("LlamaConfig", lambda _: None, {"intermediate_size": 204}, [None, None]),
        ("LlamaConfig", hook_one, {}, [True, None]),
    ],
    ids=["granite", "smollm3", "gelu", "mlp bias", "output bias", "uneven", "hooked"],
)
def test_other_layers_stay_as_they_are(kind, prepare, more, expected):
    model = engine(kind, "tiled", prepare, **more)
    assert how_fused(model) == expected
    assert is_right(model)


@pytest.mark.parametrize("stored", STORED)
def test_a_layer_with_one_wrong_row_stays_as_it_is(stored, monkeypatch):
    def wrong(calls, rows, cos, sin):
        found = output(calls, rows, cos, sin)
        found[3] += 0.2 * (found[3] - rows[3])
        rows[:1] *= 1e6  # must not hide it
        return found

    output = FusedCalls.output
    monkeypatch.setattr(FusedCalls, "output", wrong)
    assert how_fused(engine("LlamaConfig", stored)) == [False, False]


def test_other_code_can_watch_and_replace_modules_later():
    model, seen = engine("Qwen2Config", "tiled"), []
    for name in ("mlp", "mlp.act_fn", "self_attn.q_proj"):
        module = layers(model)[0].get_submodule(name)
        hook = module.register_forward_hook(lambda *_, name=name: seen.append(name))
        assert is_right(model)
        assert seen == [name] * 2, "once in our pass, once in that of transformers"
        seen.clear()
        hook.remove()
    plain = nn.Linear(128, 224, bias=False)
    layers(model)[1].mlp.gate_proj = plain
    assert is_right(model)


class Triple(LlamaRMSNorm):
    def forward(self, x: Tensor) -> Tensor:
        return 3 * super().forward(x)


class Factor(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def add_bias(layer: nn.Module) -> None:
    layer.mlp.down_proj.bias = nn.Parameter(torch.ones(128))


def widen_norm(layer: nn.Module) -> None:
    layer.input_layernorm.variance_epsilon = 30.0


def clear_hooks_and_add_one(layer: nn.Module) -> None:
    layer.mlp._forward_hooks = OrderedDict()
    layer.mlp.register_forward_hook(lambda _module, _given, out: 3 * out)


def parametrize(layer: nn.Module) -> None:
    nn.utils.parametrize.register_parametrization(layer.input_layernorm, "weight", Factor())


def other_norm(layer: nn.Module) -> None:
    norm = Triple(128)
    norm.weight, layer.input_layernorm = layer.input_layernorm.weight, norm


def norm_of_pytorch(layer: nn.Module) -> None:
    layer.input_layernorm = nn.RMSNorm(128)


def no_key_norm(layer: nn.Module) -> None:
    layer.self_attn.k_norm = nn.Identity()


def wide_key_norm(layer: nn.Module) -> None:
    layer.self_attn.k_norm.variance_epsilon = 30.0


def repeat_first_weight(layer: nn.Module) -> None:
    weight = layer.input_layernorm.weight
    weight.data = weight.data[:1].expand(128)


CHANGES = [
    add_bias,
    widen_norm,
    clear_hooks_and_add_one,
    parametrize,
    other_norm,
    norm_of_pytorch,
    no_key_norm,
    wide_key_norm,
    repeat_first_weight,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@torch.no_grad()
def test_other_code_can_change_modules_between_passes(change):
    model = engine("Qwen3Config", "tiled")
    before = tree_logits(model)
    change(layers(model)[1])
    for _ in range(2):  # the first pass may compare
        assert is_right(model)
    assert not torch.allclose(tree_logits(model), before, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("patched", [Qwen3MLP, Qwen3DecoderLayer])
@torch.no_grad()
def test_other_code_can_patch_a_class_between_passes(patched, monkeypatch):
    model = engine("Qwen3Config", "tiled")
    before, forward = tree_logits(model), patched.forward
    monkeypatch.setattr(patched, "forward", lambda *a, **more: 2 * forward(*a, **more))
    assert is_right(model)
    assert not torch.allclose(tree_logits(model), before, rtol=1e-3, atol=1e-3)


def test_hooks_of_all_modules_are_called():
    model, seen = engine("LlamaConfig", "tiled"), set()
    with nn.modules.module.register_module_forward_hook(lambda module, *_: seen.add(type(module))):
        tree_logits(model)
    assert type(layers(model)[0].mlp) in seen


def test_weights_that_were_moved_are_freed():
    model = engine("LlamaConfig", "tiled")
    weight = weakref.ref(layers(model)[1].mlp.down_proj.weight)
    model._model.to("meta")
    assert weight() is None


@pytest.mark.parametrize("stored", STORED)
def test_new_weights_are_seen(stored):
    model = engine("LlamaConfig", stored)
    layer = layers(model)[1]
    before = tree_logits(model)
    layer.mlp.down_proj.weight.data = layer.mlp.down_proj.weight.flip(0)
    layer.input_layernorm.weight = nn.Parameter(2 * layer.input_layernorm.weight)
    assert not torch.allclose(tree_logits(model), before, rtol=1e-2, atol=1e-2)
    if stored == "tiled":
        assert is_right(model)


def test_a_copy_reads_its_own_weights():
    model = engine("LlamaConfig", "tiled")
    plain = model._model
    copied = HuggingFaceModel(copy.deepcopy(plain), word_tokenizer(), "llama", model.stored)
    expected = tree_logits(model)
    assert torch.equal(tree_logits(copied), expected)
    with torch.no_grad():
        for weight in plain.parameters():
            weight.zero_()
    assert torch.equal(tree_logits(copied), expected)


def test_the_engine_can_take_over_a_model_twice_and_it_can_be_saved():
    plain = tiny("MistralConfig", **WIDE)
    stored = store_weights(plain, "as-loaded", "tiled")
    for _ in range(2):
        model = HuggingFaceModel(plain, word_tokenizer(), "mistral", stored)
        assert how_fused(model) == [True, True]
    layer = pickle.loads(pickle.dumps(layers(model)[0]))
    assert type(layer) is type(layers(model)[0])


@torch.inference_mode()
def test_a_layer_can_be_called_as_transformers_allows():
    layer, x = layers(engine("LlamaConfig", "tiled"))[0], torch.randn(1, 3, 128)
    angles = torch.randn(1, 3, 32)
    named = layer(x, position_embeddings=(angles.cos(), angles.sin()))
    assert torch.equal(layer(x, None, None, None, False, (angles.cos(), angles.sin())), named)


def test_a_pass_needs_no_inference_mode():
    model = engine("LlamaConfig", "tiled")
    cache = TreeCache(model.kv_shape, 4, ROOM)
    assert model.forward([cache.prepare([0], [[3, 1, 4]])]).shape == (1, model.card.vocab_size)


def test_a_model_that_is_not_used_any_more_is_freed():
    model = engine("LlamaConfig", "tiled")
    layer = weakref.ref(layers(model)[0])
    del model
    assert layer() is None
