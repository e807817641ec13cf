"""Attention without our caches: transformers' own."""

import sys
from typing import Any

import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward


def plain_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    arguments: dict[str, Any],
) -> Tensor:
    """The attention output, (1, T, H, D), by SDPA. If the model caps its scores or has sinks, which
    SDPA would refuse or ignore, the function in the model's own file is used.
    """
    if arguments.get("softcap") is None and arguments.get("s_aux") is None:
        out: Tensor = sdpa_attention_forward(module, query, key, value, mask, **arguments)[0]
        return out
    eager = sys.modules[type(module).__module__].eager_attention_forward
    if mask is None or mask.dtype == torch.bool:
        mask = _numbers(mask, query, key.shape[2])
    out = eager(module, query, key, value, mask, **arguments)[0]
    return out


def _numbers(mask: Tensor | None, query: Tensor, length: int) -> Tensor:
    """The mask as numbers to add to the scores; a causal mask if there is none."""
    new = query.shape[2]
    if mask is None:
        shape = torch.ones(new, length, dtype=torch.bool, device=query.device)
        mask = shape.tril(length - new)[None, None]
    return torch.zeros_like(mask, dtype=query.dtype).masked_fill(
        ~mask, torch.finfo(query.dtype).min
    )
