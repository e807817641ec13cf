"""Attention of one layer over cache rows, in plain PyTorch.

Shapes: H query heads in G groups of g = H / G, T tokens, C rows, D head size.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from eab.engine.caches.shape import ORDINARY, LayerAttention

# CUDA's attention kernels need each row of the mask to start at a multiple of this many numbers;
# otherwise PyTorch copies the mask in every layer.
MASK_ALIGNMENT: Final = 8
# PyTorch prefers the cuDNN kernel on new GPUs. With a mask, it is set up again for every length. It
# has also given wrong results for few KV heads (github.com/pytorch/pytorch/issues/193893).
_CUDA_KERNELS: Final = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]


def attention_kernels(device: torch.device) -> AbstractContextManager[None]:
    """A context in which attention on CUDA uses the same kernels as in runs."""
    return sdpa_kernel(_CUDA_KERNELS) if device.type == "cuda" else nullcontext()


def by_group(heads: Tensor, groups: int) -> Tensor:
    """Query heads (H, T, D) by group, (G, g, T, D)."""
    by_group: Tensor = heads.unflatten(0, (groups, -1))
    return by_group


def attention_mask(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask for `masked_attention`, (T, C): 0 where a token sees a row by `visible`, (T, C) bool,
    and minus infinity elsewhere.
    """
    tokens, rows = visible.shape
    return fill_mask(empty_mask(tokens, rows, dtype, visible.device), visible)


def empty_mask(tokens: int, rows: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """An uninitialised mask, (T, C)."""
    width = -(-rows // MASK_ALIGNMENT) * MASK_ALIGNMENT
    return torch.empty((tokens, width), dtype=dtype, device=device)[:, :rows]


def fill_mask(mask: Tensor, visible: Tensor) -> Tensor:
    """Fill a mask from the rows that each token sees, (T, C) bool."""
    return mask.zero_().masked_fill_(~visible, float("-inf"))


def masked_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scale: float,
    layer: LayerAttention = ORDINARY,
) -> Tensor:
    """Attention of all queries over all rows, under a mask.

    Args:
        query: (G, g, T, D), like the output.
        keys, values: (G, C, D).
        mask: Added to the scores, (T, C), or as many for each group, (G, 1, T, C); None if every
            token sees every row.
    """
    if not layer.is_fused:
        return _scored_attention(query, keys, values, mask, scale, layer)
    keys, values = (_for_heads(rows, query.shape[1]) for rows in (keys, values))
    return functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)


def _for_heads(rows: Tensor, heads: int) -> Tensor:
    """K or V of each group, (G, C, D), for each of its query heads: a view, (G, g, C, D)."""
    return rows[:, None].expand(-1, heads, -1, -1)


def _scored_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scale: float,
    layer: LayerAttention,
) -> Tensor:
    """The same with explicit scores: fused kernels allow no soft cap and no sinks."""
    sizes = query.shape[:3]
    scores = (query.flatten(1, 2) @ keys.transpose(1, 2) * scale).unflatten(1, sizes[1:])
    if layer.soft_cap:
        scores = (scores / layer.soft_cap).tanh() * layer.soft_cap
    if mask is not None:
        scores = scores + mask
    if layer.sinks:
        sinks = _constants(layer.sinks, scores.dtype, scores.device).view(*sizes[:2], 1, 1)
        scores = torch.cat([scores, sinks.expand(*sizes, 1)], dim=-1)
    precise = torch.float32 if scores.dtype.itemsize < 4 else scores.dtype
    weights = scores.softmax(dim=-1, dtype=precise).to(values.dtype)
    out: Tensor = weights[..., : keys.shape[1]].flatten(1, 2) @ values
    return out.view(*sizes, -1)


@lru_cache(maxsize=4096)
def _constants(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The numbers on the device, copied once: CUDA graphs must not copy from the host."""
    with torch.inference_mode():
        return torch.tensor(numbers, dtype=torch.float64).to(device, dtype)


def merged(out: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over two sets of rows, merged from the output, (..., D), and the log-sum-exp of the
    scores, (...), of each. The result is the average of the two outputs, weighted by their sums of
    exponentials.
    """
    weight = torch.sigmoid(more_lse - lse)[..., None].to(out.dtype)
    return torch.lerp(out, more, weight), torch.logaddexp(lse, more_lse)


def attention_with_lse(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention of all queries over all rows, as in `masked_attention`, on CPUs: the output,
    (G, g, T, D), and the log-sum-exp of the scores, (G, g, T), which only PyTorch's CPU kernel
    returns; the public function does not.
    """
    keys, values = (_for_heads(rows, query.shape[1]) for rows in (keys, values))
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, keys, values, 0.0, False, attn_mask=mask, scale=scale
    )
    return out, lse
