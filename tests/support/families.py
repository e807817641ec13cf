"""Tiny random models of transformers' families, by the name of their configuration class."""

from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedModel

from eab.config import BranchingConfig

USUAL = {
    "vocab_size": 72,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
# Longer than the windows and chunks of these models
PROMPT = " ".join(f"w{2 + (7 * index) % 60}" for index in range(20))
FORKING = BranchingConfig(
    max_new_tokens=16, max_paths=6, seed=3, entropy_threshold=0.5, min_fork_weight=0.0
)


def tiny(
    kind: str, dtype: torch.dtype = torch.float64, seed: int = 1, **more: Any
) -> PreTrainedModel:
    """A tiny model of the family with this configuration class. Its weights are large, so that a
    small difference in its cache or states shows in its logits.
    """
    config = getattr(transformers, kind)(**USUAL | more)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).to(dtype).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() >= 2 and "A_log" not in name:
                weight.normal_(0, 0.3)
    return model
