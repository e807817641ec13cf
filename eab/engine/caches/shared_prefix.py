"""Attention over segments of the prefix cache, computed once for all runs of a pass that read them.

Each run attends to its own rows. The queries of all runs that read a segment are joined for it, and
the results are merged by their log-sum-exp, as in cascade inference (FlashInfer) and Hydragen
(Juravsky et al., arXiv 2402.05099).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeAlias

import torch
from torch import Tensor

from eab.engine.caches.attention import attention_with_lse, by_group, merged
from eab.engine.caches.base import ForwardBatch
from eab.engine.caches.prefix_cache import Rows

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
