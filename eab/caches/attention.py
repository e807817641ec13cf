"""Attention of one layer over cache rows: masked, or cascaded over a shared prefix and suffixes.

Shapes: H query heads in G groups of g = H / G, T queries (tokens), C rows, D head size.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from eab.caches.cascade import SuffixBlock, SuffixQueries
from eab.caches.layers import ORDINARY, LayerAttention

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


class SuffixIndex:
    """A SuffixQueries on the device; `queries` (flattened) and `positions` are None if path i alone
    sees suffix i.
    """

    def __init__(self, part: SuffixQueries, device: torch.device) -> None:
        self.block, self.paths = part.block, len(part.positions)
        self.shape = part.queries.shape  # (suffixes, most queries of one suffix)
        identity = part.queries.shape[1] == 1 and part.positions.tolist() == [*range(self.shape[0])]
        self.queries = None if identity else torch.from_numpy(part.queries.ravel()).to(device)
        self.positions = None if identity else torch.from_numpy(part.positions).to(device)


def attention_kernels(device: torch.device) -> AbstractContextManager[None]:
    """A context in which attention on CUDA uses the same kernels as in runs."""
    return sdpa_kernel(_CUDA_KERNELS) if device.type == "cuda" else nullcontext()


def by_group(query: Tensor, keys: Tensor) -> Tensor:
    """Queries (H, T, D) as query rows of each group, (G, g * T, D), so that K and V, (G, ...), are
    not expanded per query head.
    """
    return query.reshape(len(keys), -1, query.shape[-1])


def attention_mask(visible: Tensor, group: int, dtype: torch.dtype) -> Tensor:
    """A mask for `masked_attention`, (g * T, C): 0 where a token sees a row by `visible`, (T, C)
    bool, and minus infinity elsewhere. `group` is g.
    """
    tokens, rows = visible.shape
    return fill_mask(empty_mask(group * tokens, rows, dtype, visible.device), visible)


def empty_mask(queries: int, rows: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """An uninitialised mask, (queries, rows)."""
    width = -(-rows // MASK_ALIGNMENT) * MASK_ALIGNMENT
    return torch.empty((queries, width), dtype=dtype, device=device)[:, :rows]


def fill_mask(mask: Tensor, visible: Tensor) -> Tensor:
    """Fill a mask, (g * T, C), from the rows that each token sees, (T, C) bool."""
    by_group = mask.view(-1, *visible.shape)
    by_group.zero_().masked_fill_(~visible, float("-inf"))
    return mask


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
        query: (G, g * T, D), like the output.
        keys, values: (G, C, D).
        mask: Added to the scores, (g * T, C); None if every query sees every row.
    """
    if not layer.is_fused:
        return _scored_attention(query, keys, values, mask, scale, layer)
    return functional.scaled_dot_product_attention(
        query[None], keys[None], values[None], attn_mask=mask, scale=scale
    )[0]


def _scored_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scale: float,
    layer: LayerAttention,
) -> Tensor:
    """The same with explicit scores: fused kernels allow no soft cap and no sinks."""
    groups, queries, _ = query.shape
    scores = query @ keys.transpose(1, 2) * scale
    if layer.soft_cap:
        scores = (scores / layer.soft_cap).tanh() * layer.soft_cap
    if mask is not None:
        scores = scores + mask
    if layer.sinks:
        sinks = _constants(layer.sinks, scores.dtype, scores.device).view(groups, -1, 1)
        column = sinks.expand(-1, -1, queries // sinks.shape[1]).reshape(groups, queries, 1)
        scores = torch.cat([scores, column], dim=-1)
    precise = torch.float32 if scores.dtype.itemsize < 4 else scores.dtype
    weights = scores.softmax(dim=-1, dtype=precise).to(values.dtype)
    return weights[..., : keys.shape[1]] @ values


@lru_cache(maxsize=4096)
def _constants(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The numbers on the device, copied once: CUDA graphs must not copy from the host."""
    with torch.inference_mode():
        return torch.tensor(numbers, dtype=torch.float64).to(device, dtype)


def cascade_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scale: float,
    suffixes: Sequence[SuffixIndex],
    first: int = 0,
    tail: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention over all rows from `first` to the end of the last suffix block, and over the tail
    after it (see eab.caches.cascade).

    Args:
        mask: For the rows from `first` on, before the first suffix block.
        suffixes: The suffix blocks, in the order of their rows.
        tail: The mask of the rows after the last suffix block, if there are any.

    Returns:
        The output, (G, g * T, D), and the log-sum-exp of the scores, (G, g * T).
    """
    prefix = suffixes[0].block.start
    parts = attention_with_lse(query, keys[:, first:prefix], values[:, first:prefix], mask, scale)
    for suffix in suffixes:
        parts = merged(*parts, *_suffix_attention(query, keys, values, scale, suffix))
    if tail is not None:
        rows = slice(suffixes[-1].block.end, suffixes[-1].block.end + tail.shape[1])
        own = attention_with_lse(query, keys[:, rows], values[:, rows], tail, scale)
        parts = merged(*parts, *own)
    return parts


def merged(out: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over two sets of rows, merged from the output, (..., D), and the log-sum-exp of the
    scores, (...), of each. The result is the average of the two outputs, weighted by their sums of
    exponentials.
    """
    weight = torch.sigmoid(more_lse - lse)[..., None].to(out.dtype)
    return torch.lerp(out, more, weight), torch.logaddexp(lse, more_lse)


def _suffix_attention(
    query: Tensor, keys: Tensor, values: Tensor, scale: float, suffix: SuffixIndex
) -> tuple[Tensor, Tensor]:
    """Each query over the rows of its suffix: the output, (G, g * T, D), and the log-sum-exp of
    the scores, (G, g * T).
    """
    groups, rows, size = query.shape
    (count, most), block = suffix.shape, suffix.block
    by_path = query.view(groups, -1, suffix.paths, size)
    by_path = by_path if suffix.queries is None else by_path[:, :, suffix.queries]
    by_suffix = (
        by_path.view(groups, -1, count, most, size)
        .permute(2, 0, 1, 3, 4)
        .reshape(count, groups, -1, size)
    )
    strided = [_by_suffix(tensor[:, block.start : block.end], block) for tensor in (keys, values)]
    out, lse = _cpu_attention(by_suffix, strided[0], strided[1], None, scale)
    out = (
        out.reshape(count, groups, -1, most, size)
        .permute(1, 2, 0, 3, 4)
        .reshape(groups, -1, count * most, size)
    )
    lse = lse.reshape(count, groups, -1, most).permute(1, 2, 0, 3).reshape(groups, -1, count * most)
    if suffix.positions is not None:
        out, lse = out[:, :, suffix.positions], lse[:, :, suffix.positions]
    return out.reshape(groups, rows, size), lse.reshape(groups, rows)


def _by_suffix(rows: Tensor, block: SuffixBlock) -> Tensor:
    """A view of the rows of a block, (G, C, D), as (suffixes, G, steps, D)."""
    groups, _, size = rows.shape
    if block.by_path:
        return rows.view(groups, block.suffixes, block.steps, size).transpose(0, 1)
    return rows.view(groups, block.steps, block.suffixes, size).permute(2, 0, 1, 3)


def attention_with_lse(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention of all queries over all rows, as in `masked_attention`, on CPUs: the output,
    (G, g * T, D), and the log-sum-exp of the scores, (G, g * T).
    """
    out, lse = _cpu_attention(query[None], keys[None], values[None], mask, scale)
    return out[0], lse[0]


def _cpu_attention(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention and the log-sum-exp of its scores, which only PyTorch's CPU kernel returns; the
    public function does not.
    """
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, keys, values, 0.0, False, attn_mask=mask, scale=scale
    )
    return out, lse
