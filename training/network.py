"""The shape of the model, a small Llama with tied embeddings, and widening a trained model."""

import math

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from training.tokenizer import END_ID

CONTEXT = 512
VOCABULARY = 4096


def build_model(hidden: int, layers: int, seed: int) -> LlamaForCausalLM:
    """A new model with heads of size 32 and a feed-forward part of 8/3 the width."""
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


# The matrices that write into the residual stream; all others read from it.
WRITERS = ("embed_tokens", "lm_head", "o_proj", "down_proj")


@torch.no_grad()
def widened(narrow: LlamaForCausalLM, hidden: int, seed: int) -> LlamaForCausalLM:
    """A wider model that computes the same function, for further training (Net2Net, Chen et al.
    2016).

    The new dimensions of the residual stream start at zero, so the mean square by which the norms
    divide shrinks by the ratio of the widths. The norm weights make up for it. New heads and
    neurons start with random input weights and zero output weights. They change nothing at first,
    but have a gradient from the first step.
    """
    before = narrow.config.hidden_size
    if hidden < before:
        raise ValueError(f"cannot widen a model of width {before} to {hidden}")
    wide = build_model(hidden, narrow.config.num_hidden_layers, seed)
    old = narrow.state_dict()
    for name, weight in wide.state_dict().items():
        if "norm" in name:
            weight[:before] = old[name] * math.sqrt(before / hidden)
            continue
        if any(part in name for part in WRITERS):
            weight.zero_()
        rows, columns = old[name].shape
        weight[:rows, :columns] = old[name]
    return wide
