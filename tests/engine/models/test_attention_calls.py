"""A model is accepted if it asks for ordinary causal attention, in every data type. It is judged by
what it asks for, because in 16 bits a wrong result can hide behind rounding. What it lets a token
read is derived from the functions that make its masks, and is said in a sentence.
"""

from itertools import cycle, product

import pytest
import torch
from tiny_models import tiny
from transformers import AutoModelForCausalLM, XLMConfig
from transformers.masking_utils import (
    and_masks,
    causal_mask_function,
    chunked_causal_mask_function,
    sdpa_mask,
    sliding_window_causal_mask_function,
)

from eab.engine.caches.shape import EVERYTHING, KVShape, LayerAttention, Reach, RowShape
from eab.engine.models.attention_calls import MaskRule, cache_mask, recording
from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.models.loading import wrap_model
from eab.engine.models.transformers_model import reach_words, rows_words
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


NO_PADDING = torch.zeros(1, dtype=torch.int64)
FULL = causal_mask_function


def rule(sees, size=0):
    with recording() as record:
        cache_mask(batch_size=1, q_length=5, kv_length=5, mask_function=sees, local_size=size)
    (found,) = record.rules
    return found


@pytest.mark.parametrize(
    ("sees", "size", "reach"),
    [
        (FULL, 0, EVERYTHING),
        (FULL, 8, EVERYTHING),
        (sliding_window_causal_mask_function(8), 8, Reach(window=8)),
        (sliding_window_causal_mask_function(1), 1, Reach(window=1)),
        (chunked_causal_mask_function(8, NO_PADDING), 8, Reach(chunk=8)),
        (sliding_window_causal_mask_function(8), 9, None),
        (sliding_window_causal_mask_function(8), 0, None),
        (lambda _text, _head, at, row: row <= at + 1, 0, None),
        (lambda _text, _head, at, row: (row <= at) & (row != 3), 0, None),
        (and_masks(FULL, lambda _text, _head, _, row: torch.arange(5)[row] >= 0), 0, None),
    ],
)
def test_the_reach_of_a_mask_is_known_for_every_length(sees, size, reach):
    assert rule(sees, size).reach(200) == reach
    if reach == Reach(window=8):
        assert rule(sees, size).reach(8) == EVERYTHING, "a window as long as the context"


def test_masks_that_are_not_noted_are_those_of_transformers():
    sizes = {"batch_size": 1, "q_length": 5, "kv_length": 5}
    assert cache_mask(**sizes) is None
    window = sliding_window_causal_mask_function(3)
    ours = cache_mask(**sizes, mask_function=window, local_size=3)
    assert torch.equal(ours, sdpa_mask(**sizes, mask_function=window, local_size=3))
    assert isinstance(rule(FULL), MaskRule)


def test_a_mask_that_no_cache_supports_is_refused(words, monkeypatch):
    monkeypatch.setattr(
        "transformers.masking_utils.sliding_window_overlay",
        lambda window: lambda _text, _head, at, row: (row > at - window) | (row == 0),
    )
    with pytest.raises(ModelError, match=r"'mistral' lets a token .* earlier ones by an unkn"):
        HuggingFaceModel(tiny("MistralConfig", sliding_window=16), words, "it")


def test_the_sentence_says_what_the_layers_read():
    window, chunk = LayerAttention(Reach(window=6)), LayerAttention(Reach(chunk=8))
    plain, borrows = LayerAttention(), LayerAttention(source=0)
    for layers, words in (
        ((plain, plain), ""),
        ((LayerAttention(soft_cap=2.0, rows=RowShape(2, 8, 6)),), ""),
        ((window, plain, window), " 2 of 3 attention layers read only the last 6 tokens, but"),
        ((window,), " The attention layer reads only the last 6 tokens, but all rows are kept."),
        ((chunk, plain), " 1 of 2 attention layers reads only the latest chunk of 8 tokens, but"),
        ((plain, borrows), " 1 of 2 attention layers reads the rows of another layer."),
    ):
        shape = KVShape(len(layers), 2, 8, torch.float32, torch.device("cpu"), attention=layers)
        begun = f"KV rows are shared between paths, {shape.row_bytes} B for each token."
        assert rows_words(shape).startswith(begun + words if words else "")
        assert bool(rows_words(shape)) == bool(words)
        assert reach_words(shape).startswith("" if borrows in layers else words)
