"""Our decoder gives what transformers' code gives, and stands back where other code takes part."""

import copy
import pickle
import weakref
from collections import OrderedDict
from collections.abc import Callable
from itertools import cycle

import pytest
import torch
from tiny_models import tiny, word_tokenizer
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3MLP

from eab.engine import compiled
from eab.engine.caches.tree import TreeCache
from eab.engine.models import weights as model_weights
from eab.engine.models.decoder import Decoder
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.models.products import CompiledProduct, MergedProduct
from eab.engine.models.quantized.integers import Aten, OneDnn, int4_products, int8_products
from eab.engine.models.weights import store_weights

WIDE = {
    "hidden_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 256,
}
STORED = {
    "plain": ("as-loaded", "plain"),
    "int8": ("int8", "auto"),
    "int4": ("int4", "auto"),
    "nf4": ("nf4", "auto"),
}
if model_weights._can_prepack():
    STORED["prepacked"] = ("as-loaded", "prepacked")
USUAL = "plain"
if compiled.can_compile():
    USUAL, STORED["tiled"] = "tiled", ("as-loaded", "tiled")
COMPILED = {
    "tiled": compiled.can_compile(),
    "int8": int8_products() is not OneDnn,
    "int4": int4_products() is not Aten,
}
ROOM = 2**30
FAMILIES = {
    "LlamaConfig": {},
    "MistralConfig": {"sliding_window": 5},
    "Qwen2Config": {},
    "Qwen3Config": {},
    "SmolLM3Config": {"no_rope_layer_interval": 2, "pad_token_id": 0},
    "GemmaConfig": {},
    "Gemma2Config": {"sliding_window": 5, "query_pre_attn_scalar": 32},
    "Gemma3TextConfig": {
        "sliding_window": 5,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "GraniteConfig": {"residual_multiplier": 0.5, "embedding_multiplier": 3.0},
    "Phi3Config": {"pad_token_id": 0},
}


def large_weights(model: nn.Module) -> None:
    """Give a tiny model norms and biases in which a mistake shows."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.normal_(1.0 if "norm" in name else 0.0, 0.3)


def engine(kind: str, stored: str = USUAL, prepare=lambda model: None, **more) -> HuggingFaceModel:
    """An engine's model with large random weights, norms and biases."""
    plain = tiny(kind, spread=0.2, **WIDE | FAMILIES.get(kind, {}) | more)
    large_weights(plain)
    prepare(plain)
    weights = store_weights(plain, *STORED[stored])
    return HuggingFaceModel(plain, word_tokenizer(), kind, weights)


def layers(model: HuggingFaceModel) -> list[nn.Module]:
    return [*model._model.model.layers]


def uses_ours(model: HuggingFaceModel) -> bool:
    return model._own_decoder is not None and model._own_decoder.current() is not None


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


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        *zip(FAMILIES, cycle([*STORED, torch.float64, torch.bfloat16]), strict=False),
        *(("Qwen3Config", one) for one in STORED),
        *((kind, torch.bfloat16) for kind in ("Gemma2Config", "GraniteConfig")),
        *((kind, torch.float64) for kind in ("LlamaConfig", "Qwen3Config")),
    ],
    ids=str,
)
def test_the_logits_are_those_of_transformers(kind, stored):
    if isinstance(stored, torch.dtype):
        plain = tiny(kind, stored, spread=0.2, **WIDE | FAMILIES[kind])
        model = HuggingFaceModel(plain, word_tokenizer(), kind)
        most = 1e-9 if stored == torch.float64 else 0.05
    else:
        model, most = engine(kind, stored), 1e-5 if STORED[stored][0] == "as-loaded" else 0.03
    assert model.card.own_decoder
    assert uses_ours(model)
    ours = tree_logits(model)
    model._own_decoder = None
    plain = tree_logits(model)
    assert (ours - plain).norm() / plain.norm() < most


@pytest.mark.parametrize("stored", [name for name, there in COMPILED.items() if there])
def test_compiled_products_are_used_and_a_path_has_the_same_bits_alone(stored):
    model = engine("Qwen3Config", stored)
    layer = model._own_decoder.current().layers[0]
    each = (layer.qkv, layer.output, layer.gates, layer.down)
    assert {type(product) for product in each} == {CompiledProduct}
    together = tree_logits(model)
    for path in (1, 3):
        assert torch.equal(tree_logits(model, only=path)[:, 0], together[:, path - 1])


@pytest.mark.skipif(not COMPILED["tiled"], reason="nothing can be compiled here")
@pytest.mark.parametrize("size", [200, 208])
def test_gates_need_not_fill_their_blocks(size):
    model = engine("LlamaConfig", "tiled", intermediate_size=size)
    layer = model._own_decoder.current().layers[0]
    assert {type(layer.gates), type(layer.down)} == {CompiledProduct}
    assert layer.gates.starts[1] > 200
    assert is_right(model)


def setting(path: str, name: str, value: object) -> Callable[[nn.Module], None]:
    return lambda layer: setattr(layer.get_submodule(path), name, value)


def of_all_layers(change: Callable[[nn.Module], None]) -> Callable[[nn.Module], object]:
    return lambda model: [change(layer) for layer in model.model.layers]


def add_bias(path: str) -> Callable[[nn.Module], object]:
    def change(layer: nn.Module) -> None:
        linear = layer.get_submodule(path)
        linear.bias = nn.Parameter(torch.linspace(-2.0, 2.0, linear.out_features))

    return of_all_layers(change)


def triple(norm: nn.Module) -> nn.Module:
    found = Triple(128)
    found.weight = norm.weight
    return found


def rope(**values) -> dict:
    return {"rope_parameters": {"rope_theta": 10000.0, **values}}


YARN = rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)


def by_position(beta: float) -> dict:
    sizes = {"factor": 16.0, "original_max_position_embeddings": 8}
    return rope(rope_type="yarn", llama_4_scaling_beta=beta, **sizes)


# What the decoder might read differently: a config class, settings, and a change of the weights.
MUTATIONS = {
    "attention bias": ("LlamaConfig", {"attention_bias": True}, None),
    "mlp bias": ("LlamaConfig", {"mlp_bias": True}, None),
    "output bias": ("LlamaConfig", {}, add_bias("self_attn.o_proj")),
    "key bias": ("LlamaConfig", {}, add_bias("self_attn.k_proj")),
    "gate bias": ("LlamaConfig", {}, add_bias("mlp.gate_proj")),
    "gelu": ("LlamaConfig", {"hidden_act": "gelu"}, None),
    "relu": ("LlamaConfig", {"hidden_act": "relu"}, None),
    "epsilon": ("LlamaConfig", {"rms_norm_eps": 0.1}, None),
    "epsilon of heads": (
        "Qwen3Config",
        {},
        of_all_layers(setting("self_attn.q_norm", "variance_epsilon", 0.5)),
    ),
    "theta": ("LlamaConfig", rope(rope_type="default") | rope(rope_theta=50.0), None),
    "linear rope": ("LlamaConfig", rope(rope_type="linear", factor=4.0), None),
    "yarn": ("LlamaConfig", YARN, None),
    "partial rotary": ("Phi3Config", rope(rope_type="default", partial_rotary_factor=0.5), None),
    "no rope in layers": ("SmolLM3Config", {"no_rope_layers": [1, 1]}, None),
    "scale by position": ("Ministral3Config", by_position(0.1), None),
    "attention scale": ("LlamaConfig", {}, of_all_layers(setting("self_attn", "scaling", 0.3))),
    "query scalar": ("Gemma2Config", {"query_pre_attn_scalar": 7}, None),
    "logit cap": ("Gemma2Config", {"final_logit_softcapping": 2.0}, None),
    "embedding scale": (
        "Gemma3TextConfig",
        {},
        lambda model: model.model.embed_tokens.embed_scale.mul_(0.9),
    ),
    "embedding multiplier": ("GraniteConfig", {"embedding_multiplier": 2.9}, None),
    "attention multiplier": ("GraniteConfig", {"attention_multiplier": 0.3}, None),
    "residual multiplier": ("GraniteConfig", {"residual_multiplier": 0.49}, None),
    "logit scale": ("GraniteConfig", {"logits_scaling": 1.1}, None),
    "untied": ("LlamaConfig", {"tie_word_embeddings": False}, None),
    "another norm": (
        "LlamaConfig",
        {},
        lambda model: setattr(model.model, "norm", triple(model.model.norm)),
    ),
}
MISREAD = {"Ministral3Config": by_position(0.0), "LlamaConfig": {"tie_word_embeddings": True}}


def mutated(name: str) -> nn.Module:
    kind, more, change = MUTATIONS[name]
    model = tiny(kind, spread=0.2, **WIDE | FAMILIES.get(kind, {}) | MISREAD.get(kind, {}) | more)
    large_weights(model)
    if change is not None:
        change(model)
    return model


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_is_unusual_is_computed_right(name):
    model = mutated(name)
    expected = copy.deepcopy(model)
    ours, ids = HuggingFaceModel(model, word_tokenizer(), name), torch.arange(3, 23)[None]
    assert ours.card.own_decoder == (name not in ("another norm", "scale by position"))
    cache = TreeCache(ours.kv_shape, 4, ROOM)
    with torch.inference_mode():
        found = ours.forward([cache.prepare([0], ids.tolist(), [20])])
        assert torch.allclose(found, expected(ids).logits[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [None, *MUTATIONS])
def test_a_decoder_that_ignores_it_is_noticed(name, monkeypatch):
    model = mutated(name or "untied")
    kind = MUTATIONS[name][0] if name else "LlamaConfig"
    more = {"tie_word_embeddings": False} if name is None else {}
    usual = tiny(kind, spread=0.2, **WIDE | FAMILIES.get(kind, {}) | MISREAD.get(kind, {}) | more)
    usual.load_state_dict(model.state_dict(), strict=False)

    def misread(model: nn.Module) -> Decoder:
        decoder = Decoder(usual)
        for layer, right in zip(decoder.layers, model.model.layers, strict=True):
            layer.module = right
        return decoder

    monkeypatch.setattr("eab.engine.models.huggingface.Decoder", misread)
    assert uses_ours(HuggingFaceModel(model, word_tokenizer(), "misread")) == (name is None)


def test_outside_our_passes_the_code_of_transformers_runs():
    plain = tiny("LlamaConfig", **WIDE)
    ids = torch.tensor([[2, 3, 5, 7, 11]])
    stored = store_weights(plain, "as-loaded", USUAL)
    with torch.inference_mode():
        expected = plain(ids).logits
        assert uses_ours(HuggingFaceModel(plain, word_tokenizer(), "llama", stored))
        assert torch.equal(plain(ids).logits, expected)


@pytest.mark.parametrize(
    "prepare",
    [
        lambda layer: layer.mlp.register_forward_hook(lambda *_: None),
        lambda layer: setattr(layer.mlp, "forward", layer.mlp.forward),
        lambda layer: setattr(layer.self_attn.k_proj, "weight", layer.self_attn.v_proj.weight),
    ],
    ids=["hooked", "patched", "shared weights"],
)
def test_a_model_that_is_watched_runs_in_the_code_of_transformers(prepare):
    model = engine("LlamaConfig", "plain", lambda model: prepare(model.model.layers[1]))
    assert not model.card.own_decoder
    assert is_right(model)


def is_right(model: HuggingFaceModel) -> bool:
    """Whether the logits of our pass are those of a pass of transformers."""
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    cache = TreeCache(model.kv_shape, 4, ROOM)
    with torch.inference_mode():
        ours = model.forward([cache.prepare([0], ids.tolist())])
        return torch.allclose(ours[-1], model._model(ids).logits[0, -1], rtol=1e-3, atol=1e-3)


def test_other_code_can_watch_and_replace_modules_later():
    model, seen = engine("Qwen2Config"), []
    for name in ("mlp", "mlp.act_fn", "self_attn.q_proj"):
        module = layers(model)[0].get_submodule(name)
        hook = module.register_forward_hook(lambda *_, name=name: seen.append(name))
        assert is_right(model)
        assert seen == [name] * 2, "once in our pass, once in that of transformers"
        seen.clear()
        hook.remove()
        assert uses_ours(model)
    with nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(module)):
        tree_logits(model)
    assert layers(model)[0].mlp in seen, "hooks of all modules are called"
    layers(model)[1].mlp.gate_proj = nn.Linear(128, 256, bias=False)
    assert is_right(model)
    assert not uses_ours(model)
    model = engine("GraniteConfig")
    model._model.config.logits_scaling = 0.25
    assert is_right(model)
    assert uses_ours(model)
    honest = model._model.forward
    model._model.forward = lambda *args, **more: honest(*args, **more)
    assert not uses_ours(model)


def test_a_factor_that_hides_in_the_rounding_of_bfloat16_is_noticed(monkeypatch):
    def wrapped() -> HuggingFaceModel:
        model = tiny("LlamaConfig", spread=0.2, **WIDE).to(torch.bfloat16)
        return HuggingFaceModel(model, word_tokenizer(), "llama")

    assert uses_ours(wrapped())
    honest = Decoder.logits
    monkeypatch.setattr(Decoder, "logits", lambda self, x: 1.04 * honest(self, x))
    assert not uses_ours(wrapped())


class Triple(LlamaRMSNorm):
    def forward(self, x: Tensor) -> Tensor:
        return 3 * super().forward(x)


class Factor(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def clear_hooks_and_add_one(layer: nn.Module) -> None:
    layer.mlp._forward_hooks = OrderedDict()
    layer.mlp.register_forward_hook(lambda _module, _given, out: 3 * out)


def parametrize(layer: nn.Module) -> None:
    nn.utils.parametrize.register_parametrization(layer.input_layernorm, "weight", Factor())


def other_norm(layer: nn.Module) -> None:
    layer.input_layernorm = triple(layer.input_layernorm)


def repeat_first_weight(layer: nn.Module) -> None:
    weight = layer.input_layernorm.weight
    weight.data = weight.data[:1].expand(128)


CHANGES = {
    "bias": setting("mlp.down_proj", "bias", nn.Parameter(torch.ones(128))),
    "epsilon": setting("input_layernorm", "variance_epsilon", 30.0),
    "epsilon of a head": setting("self_attn.k_norm", "variance_epsilon", 30.0),
    "norm of PyTorch": setting("", "input_layernorm", nn.RMSNorm(128)),
    "no key norm": setting("self_attn", "k_norm", nn.Identity()),
    "scale": setting("self_attn", "scaling", 1.0),
    "hooks": clear_hooks_and_add_one,
    "parametrization": parametrize,
    "another norm": other_norm,
    "expanded weight": repeat_first_weight,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@torch.no_grad()
def test_other_code_can_change_modules_between_passes(change):
    model = engine("Qwen3Config")
    before = tree_logits(model)
    change(layers(model)[1])
    assert is_right(model)
    assert not torch.allclose(tree_logits(model), before, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("patched", [Qwen3MLP, Qwen3DecoderLayer])
@torch.no_grad()
def test_other_code_can_patch_a_class_between_passes(patched, monkeypatch):
    model = engine("Qwen3Config")
    before, forward = tree_logits(model), patched.forward
    monkeypatch.setattr(patched, "forward", lambda *a, **more: 2 * forward(*a, **more))
    assert is_right(model)
    assert not torch.allclose(tree_logits(model), before, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "stored", sorted({"plain", *(name for name, there in COMPILED.items() if there)} - {"int4"})
)
def test_new_weights_are_seen(stored):
    model = engine("LlamaConfig", stored)
    layer = layers(model)[1]
    before = tree_logits(model)
    layer.mlp.down_proj.weight.data = layer.mlp.down_proj.weight.flip(0)
    layer.input_layernorm.weight = nn.Parameter(2 * layer.input_layernorm.weight)
    assert not torch.allclose(tree_logits(model), before, rtol=1e-2, atol=1e-2)
    if stored != "int8":
        assert is_right(model)


def test_weights_are_shared_with_the_model():
    model = engine("LlamaConfig", "plain")
    ours = model._own_decoder.current().layers[0].qkv
    weight = layers(model)[0].self_attn.k_proj.weight
    assert type(ours) is MergedProduct
    assert weight.untyped_storage().data_ptr() == ours.weight.untyped_storage().data_ptr()
    before = tree_logits(model)
    with torch.no_grad():
        weight.mul_(-1)
    assert uses_ours(model)
    assert is_right(model)
    assert not torch.allclose(tree_logits(model), before, rtol=1e-3, atol=1e-3)


def test_a_copy_reads_its_own_weights():
    model = engine("LlamaConfig")
    plain = model._model
    copied = HuggingFaceModel(copy.deepcopy(plain), word_tokenizer(), "llama", model.stored)
    expected = tree_logits(model)
    assert torch.equal(tree_logits(copied), expected)
    with torch.no_grad():
        for weight in plain.parameters():
            weight.zero_()
    assert torch.equal(tree_logits(copied), expected)


@pytest.mark.parametrize("layout", sorted({"plain", USUAL}))
def test_the_engine_can_take_over_a_model_twice_and_it_can_be_saved(layout):
    plain = tiny("MistralConfig", **WIDE)
    stored = store_weights(plain, "as-loaded", layout)
    both = [HuggingFaceModel(plain, word_tokenizer(), "mistral", stored) for _ in range(2)]
    assert all(map(uses_ours, both))
    layer = pickle.loads(pickle.dumps(layers(both[0])[0]))
    assert type(layer) is type(layers(both[0])[0])


def test_a_model_that_is_not_used_any_more_is_freed():
    model = engine("LlamaConfig")
    layer = weakref.ref(layers(model)[0])
    del model
    assert layer() is None


@pytest.mark.parametrize("inference", [False, True])
def test_a_model_that_the_engine_took_over_can_be_trained(inference):
    plain = tiny("LlamaConfig", spread=0.2, **WIDE)
    with torch.inference_mode(inference):
        model = HuggingFaceModel(plain, word_tokenizer(), "llama")
    before = tree_logits(model)
    cache = TreeCache(model.kv_shape, 4, ROOM)  # a pass needs no inference mode
    assert model.forward([cache.prepare([0], [[3, 1, 4]])]).shape == (1, model.card.vocab_size)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    model._model(ids, labels=ids).loss.backward()
    torch.optim.SGD(model._model.parameters(), lr=1.0).step()
    assert uses_ours(model)
    assert is_right(model)
    assert not torch.equal(tree_logits(model), before)
