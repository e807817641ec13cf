"""The shape of the model: a small Llama with tied embeddings."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from training.tokenizer import END_ID

CONTEXT = 512
VOCABULARY = 4096


def build_model(hidden: int, layers: int, seed: int) -> LlamaForCausalLM:
    """A freshly initialised model with heads of 32 dimensions and a feed-forward part of 8/3 the width."""
    torch.manual_seed(seed)
    heads = hidden // 32
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=round(hidden * 8 / 3 / 16) * 16,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=END_ID,
        eos_token_id=END_ID,
        pad_token_id=END_ID,
    )
    return LlamaForCausalLM(config)
