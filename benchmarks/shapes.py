"""Models of well-known shapes with random weights; the speed does not depend on the weights."""

from typing import Final

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
)

from eab.models.loading import EMBEDDED_FOLDER

SHAPES: Final = ("embedded", "135m", "0.5b")

_NO_STOP: Final = {"bos_token_id": None, "eos_token_id": None, "tie_word_embeddings": True}


def plain_model(shape: str, dtype: torch.dtype, device: str) -> PreTrainedModel:
    """A model with transformers' own attention and without stop tokens.

    Args:
        shape: `embedded`, the model that comes with the project; `135m`, the shape of SmolLM2-135M
            (30 layers of size 576, 9 query and 3 KV heads, vocabulary 49,152); or `0.5b`, the shape
            of Qwen2.5-0.5B (24 layers of size 896, 14 and 2 heads, vocabulary 151,936).
        dtype: The number format.
        device: Where its weights are.
    """
    if shape == "embedded":
        model = AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER, dtype=dtype)
        model.generation_config.eos_token_id = None
        return model.to(device).eval()
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(_config(shape), dtype=dtype)
    return model.eval()


def same_weights(model: PreTrainedModel) -> PreTrainedModel:
    """A second model object with the same tensors. What the engine changes in it does not change
    the first.
    """
    with torch.device("meta"):
        twin = type(model)(type(model.config).from_dict(model.config.to_dict()))
    twin.load_state_dict(model.state_dict(), assign=True)
    twin.tie_weights()
    twin.model.rotary_emb = model.model.rotary_emb
    twin.generation_config = model.generation_config
    return twin.eval()


def _config(shape: str) -> PreTrainedConfig:
    if shape == "135m":
        return LlamaConfig(
            vocab_size=49152,
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=30,
            num_attention_heads=9,
            num_key_value_heads=3,
            max_position_embeddings=2048,
            **_NO_STOP,
        )
    return Qwen2Config(
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        **_NO_STOP,
    )
