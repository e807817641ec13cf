"""Attention of one layer over cache rows, in plain PyTorch.

Segments of the prefix cache are attended to once for all runs of a pass that read them. Each run
attends to its own rows. The queries of all runs that read a segment are joined for it, and the
results are merged by their log-sum-exp, as in cascade inference (FlashInfer) and Hydragen (Juravsky
et al., arXiv 2402.05099).

Shapes: H query heads in G groups of g = H / G, T tokens, C rows, D head size.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from eab.engine.caches.base import ForwardBatch
from eab.engine.caches.shape import ORDINARY, LayerAttention

# K and V of some rows, (G, n, D) each, for each layer that has its own
Rows: TypeAlias = tuple[list[Tensor], list[Tensor]]
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


# Takes the same as `Attends.attend`, but returns the output, (H, T, D), and the log-sum-exp of the
# scores, (H, T), over the run's own rows
AttendOwn: TypeAlias = Callable[[int, Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class ReadPrefix:
    """The segments that a batch reads before the rows of its own cache."""

    segments: Sequence[Rows]
    slots: Sequence[int]  # for each layer, which K and V of a segment it reads
    attend_own: AttendOwn


@dataclass(frozen=True, slots=True)
class SegmentReaders:
    """A segment, and the tokens of a pass that read it."""

    rows: Rows
    slots: Sequence[int]
    tokens: slice | Tensor  # their indices; a slice if they are consecutive

    def merge(
        self, layer: int, query: Tensor, out: Tensor, lse: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """Attention of these tokens over the segment, merged with that over other rows.

        Args:
            query, out: (H, T, D).
            lse: (H, T).
        """
        slot = self.slots[layer]
        keys, values = (tensors[slot] for tensors in self.rows)
        asking = by_group(query[:, self.tokens], len(keys))
        found = attention_with_lse(asking, keys, values, None, scale)
        more, more_lse = (each.flatten(0, 1) for each in found)
        if more.shape[1] == out.shape[1]:
            return merged(out, lse, more, more_lse)
        out[:, self.tokens], lse[:, self.tokens] = merged(
            out[:, self.tokens], lse[:, self.tokens], more, more_lse
        )
        return out, lse


def readers_of_segments(batches: Sequence[ForwardBatch]) -> list[SegmentReaders]:
    """Each segment that some run of this pass reads, once."""
    starts = accumulate((len(batch.ids) for batch in batches), initial=0)
    segments: dict[int, tuple[Rows, Sequence[int], list[tuple[int, int]]]] = {}  # by the id of K
    for batch, tokens in zip(batches, pairwise(starts), strict=True):
        if batch.prefix is not None:
            for rows in batch.prefix.segments:
                segments.setdefault(id(rows[0]), (rows, batch.prefix.slots, []))[2].append(tokens)
    return [
        SegmentReaders(rows, slots, _tokens(ranges)) for rows, slots, ranges in segments.values()
    ]


def _tokens(ranges: Sequence[tuple[int, int]]) -> slice | Tensor:
    if all(first[1] == second[0] for first, second in pairwise(ranges)):
        return slice(ranges[0][0], ranges[-1][1])
    return torch.tensor([index for start, end in ranges for index in range(start, end)])


def attend_with_prefixes(
    batches: Sequence[ForwardBatch],
    readers: Sequence[SegmentReaders],
    layer: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
) -> Tensor:
    """Attention of a pass with these `readers_of_segments`; shapes as in `Attends.attend`."""
    lengths = [len(batch.ids) for batch in batches]
    outs, lses = [], []
    tensors = (tensor.split(lengths, 2) for tensor in (query, key, value))
    for batch, q, k, v in zip(batches, *tensors, strict=True):
        if batch.prefix is None:
            outs.append(batch.cache.attend(layer, q, k, v, scale)[0].transpose(0, 1))
            lses.append(torch.zeros(outs[-1].shape[:2]))  # never merged with anything
            continue
        out, lse = batch.prefix.attend_own(layer, q, k, v, scale)
        outs.append(out)
        lses.append(lse)
    out, lse = torch.cat(outs, dim=1), torch.cat(lses, dim=1)
    for segment in readers:
        out, lse = segment.merge(layer, query[0], out, lse, scale)
    return out.transpose(0, 1)[None]
