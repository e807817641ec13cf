"""A model is accepted if it asks for ordinary causal attention, in every data type. It is judged by
what it asks for, because in 16 bits a wrong result can hide behind rounding.
"""

from itertools import cycle, product

import pytest
import torch
from tiny_models import tiny
from transformers import AutoModelForCausalLM, XLMConfig

from eab.engine.caches.shape import RowShape
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.models.loading import wrap_model
from eab.errors import ModelError

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
NOT_CAUSAL = "lets a token read later tokens, or earlier ones by an unknown rule, or adds to its at"
OTHER_LAYERS = "does not call the attention of transformers exactly once per layer"
NO_LAYERS = "has no attention that accepts another cache"
OTHER_POSITIONS = "does not number the positions of a text from 0"
MHA = {"num_key_value_heads": 4}
REFUSED = {
    "an encoder": ("BertConfig", MHA, NOT_CAUSAL),
    "an encoder with its own positions": ("RobertaConfig", MHA, NOT_CAUSAL),
    "a decoder whose positions begin at 2": (
        "RobertaConfig",
        MHA | {"is_decoder": True, "pad_token_id": 1},
        OTHER_POSITIONS,
    ),
    "a mask that depends on the text": ("DogeConfig", {}, NOT_CAUSAL),
    "attention of its own": ("DiffLlamaConfig", {}, OTHER_LAYERS),
    "another attention of its own": ("OpenAIGPTConfig", MHA, NO_LAYERS),
}


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *zip(REFUSED, cycle(DTYPES)),
        *(product(("an encoder", "a mask that depends on the text"), DTYPES[1:])),
    ],
    ids=str,
)
def test_attention_that_is_not_ordinary_and_causal_is_refused(kind, dtype, words, monkeypatch):
    name, more, reason = REFUSED[kind]
    monkeypatch.setattr(HuggingFaceModel, "_check_against_plain_forward", lambda self: None)
    model = tiny(name, dtype, spread=0.002, **more)
    with pytest.raises(ModelError, match=f"the model family .* {reason}"):
        HuggingFaceModel(model, words, "it")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_encoder_is_refused_even_with_its_own_memory(dtype, words):
    model = tiny("BertConfig", dtype, spread=0.002, **MHA)
    with pytest.raises(ModelError, match="'bert' lets a token read later ones"):
        wrap_model(model, words)


def test_an_encoder_that_ignores_the_last_token_of_some_texts_is_refused(words):
    """It ignores as many tokens as there are padding tokens: one, in the text of the check."""
    xlm = XLMConfig(vocab_size=72, emb_dim=32, n_layers=2, n_heads=4, pad_index=0)
    with pytest.raises(ModelError, match="'xlm' lets a token read later ones"):
        wrap_model(AutoModelForCausalLM.from_config(xlm), words)


def test_row_sizes_come_from_what_the_model_stores_not_from_its_configuration(words):
    shape = wrap_model(tiny("OPTConfig", num_key_value_heads=2), words).kv_shape
    assert (shape.kv_heads, shape.group, shape.attention) == (4, 1, ())
    sizes = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
    latent = wrap_model(tiny("DeepseekV3Config", v_head_dim=6, **MHA, **sizes, **experts), words)
    assert latent.kv_shape.row(0) == RowShape(4, 8, 6)
    assert latent.card.layer_rows == ((4, 8, 6), (4, 8, 6))
    assert latent.card.row_bytes == 2 * 4 * (8 + 6) * 4


def test_layers_may_store_rows_of_different_sizes_or_read_rows_of_another_layer(words):
    sizes = {"head_dim": 8, "global_head_dim": 16, "pad_token_id": 0, "num_hidden_layers": 6}
    sizes |= {"vocab_size_per_layer_input": 72, "hidden_size_per_layer_input": 8}
    sizes |= {"layer_types": ["sliding_attention", "full_attention"] * 3, "sliding_window": 8}
    model = wrap_model(tiny("Gemma4TextConfig", num_kv_shared_layers=2, **sizes), words)
    assert model.kv_shape.slots == (0, 1, 2, 3, 2, 3)
    assert model.card.layer_rows == ((2, 8, 8), (2, 16, 16)) * 2
    assert model.card.row_bytes == 4 * (4 * 2 * 8 + 4 * 2 * 16)


def test_a_data_type_that_the_model_cannot_use_is_refused_with_an_explanation(words):
    model = tiny("MixtralConfig", torch.float64, num_local_experts=4, pad_token_id=0)
    with pytest.raises(ModelError, match=r"'mixtral' does not run in torch.float64 on cpu \(.*ble"):
        HuggingFaceModel(model, words, "it")
