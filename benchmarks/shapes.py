"""Models of well-known shapes with random weights. The speed does not depend on the weights."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Final

import torch
from published import Placement
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
)

from eab.engine.models.huggingface import HuggingFaceModel
from eab.engine.models.sources import EMBEDDED_FOLDER
from eab.engine.models.weights import store_weights
from eab.weight_formats import AS_LOADED, AUTO

_NO_STOP: Final = {
    "bos_token_id": None,
    "eos_token_id": None,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
# By the names used in the tables; plain_model says which model has which shape.
_CONFIGS: Final[Mapping[str, PreTrainedConfig]] = {
    "135m": LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        **_NO_STOP,
    ),
    "0.5b": Qwen2Config(
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        **_NO_STOP,
    ),
    "8b": LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        **_NO_STOP | {"tie_word_embeddings": False},
    ),
}
SHAPES: Final = ("embedded", *_CONFIGS)


def plain_model(shape: str, placement: Placement) -> PreTrainedModel:
    """A model with transformers' own attention and without stop tokens.

    Args:
        shape: `embedded`, the model that comes with the project; `135m`, the shape of SmolLM2-135M
            (30 layers of size 576, 9 query and 3 KV heads, vocabulary 49,152); `0.5b`, the shape of
            Qwen2.5-0.5B (24 layers of size 896, 14 and 2 heads, vocabulary 151,936); or `8b`, that
            of Llama 3.1 8B (32 layers of size 4,096, 32 and 8 heads, vocabulary 128,256).
    """
    if shape == "embedded":
        model = AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER, dtype=placement.dtype)
        model.generation_config.eos_token_id = None
        return model.to(placement.device).eval()
    torch.manual_seed(0)
    with torch.device(placement.device):
        model = AutoModelForCausalLM.from_config(deepcopy(_CONFIGS[shape]), dtype=placement.dtype)
    return model.eval()


def engine_model(plain: PreTrainedModel, name: str) -> HuggingFaceModel:
    """The engine's model with the same weights, stored as by `load_model`; without stop tokens."""
    twin = same_weights(plain)
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER)
    model = HuggingFaceModel(twin, tokenizer, name, store_weights(twin, AS_LOADED, AUTO))
    model.stop_ids = frozenset()
    return model


def same_weights(model: PreTrainedModel) -> PreTrainedModel:
    """A second model object with the same tensors, so that the engine does not change the first."""
    with torch.device("meta"):
        twin = type(model)(type(model.config).from_dict(model.config.to_dict()))
    twin.load_state_dict(model.state_dict(), assign=True)
    twin.tie_weights()
    twin.model.rotary_emb = model.model.rotary_emb
    twin.generation_config = model.generation_config
    return twin.eval()
