"""The rows that layers of one kind read in a prepared batch of the tree cache."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eab.caches.attention import (
    SuffixIndex,
    attention_mask,
    attention_with_lse,
    cascade_attention,
    masked_attention,
)
from eab.caches.layers import LayerAttention, MaskKind
from eab.caches.shape import KVShape


@dataclass(slots=True, eq=False)
class RowsRead:
    """The rows from `first` to `end` under a mask, then those of the suffixes, then all later ones,
    under a mask again.
    """

    first: int
    end: int
    group: int  # query heads per KV head
    seen: NDArray[np.bool_]  # by each token, from `first` on, (T, rows)
    suffixes: Sequence[SuffixIndex] = ()
    # (H / G * T, rows), added to the scores
    mask: Tensor | None = field(default=None, init=False)
    tail: Tensor | None = field(default=None, init=False)  # likewise, after the suffixes

    def make_mask(self, shape: KVShape, padded: bool) -> None:
        """Make the masks. `mask` is None if every token sees every row, but not for padded
        attention, whose shapes must not change.
        """
        seen = self.seen[:, : self.end - self.first]
        self.mask = self._mask(seen, shape) if padded or not bool(seen.all()) else None
        if self.suffixes:
            after = self.seen[:, self.suffixes[-1].block.end - self.first :]
            self.tail = self._mask(after, shape) if after.shape[1] else None

    def _mask(self, seen: NDArray[np.bool_], shape: KVShape) -> Tensor:
        return attention_mask(torch.from_numpy(seen).to(shape.device), self.group, shape.dtype)

    def end_at(self, row: int) -> None:
        """End the part under the mask before this row; the mask must then be made again."""
        self.end = row

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float, layer: LayerAttention
    ) -> Tensor:
        """Attention of query rows (see eab.caches.attention) over the rows of a layer."""
        if self.suffixes:
            return self.attend_with_lse(query, keys, values, scale)[0]
        rows = slice(self.first, self.end)
        return masked_attention(query, keys[:, rows], values[:, rows], self.mask, scale, layer)

    def attend_with_lse(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """The same for an ordinary layer on a CPU, with the log-sum-exp of the scores."""
        if self.suffixes:
            return cascade_attention(
                query, keys, values, self.mask, scale, self.suffixes, self.first, self.tail
            )
        rows = slice(self.first, self.end)
        return attention_with_lse(query, keys[:, rows], values[:, rows], self.mask, scale)


def seen_by_kind(
    kinds: Sequence[MaskKind],
    visible: NDArray[np.bool_],
    positions: NDArray[np.int64],
    row_positions: NDArray[np.int64],
) -> list[NDArray[np.bool_]]:
    """The rows that each token sees in the layers of each kind, (T, C); `visible` itself if these
    layers see all that the path sees.

    Args:
        visible: Which rows each path sees, (T, C).
        positions: The positions of the tokens, (T,).
        row_positions: The positions of the rows, (C,).
    """
    last = int(positions.max())
    return [
        visible if reach.sees_all_up_to(last) else visible & reach.sees(positions, row_positions)
        for reach, _, _ in kinds
    ]


def plan_readings(
    shape: KVShape,
    kinds: Sequence[MaskKind],
    seen: Sequence[NDArray[np.bool_]],
    visible: NDArray[np.bool_],
    suffixes: Sequence[SuffixIndex],
    padded: bool,
) -> list[RowsRead]:
    """What the layers of each of these kinds read, from `seen_by_kind`.

    A layer with limited reach starts at the first row that some token sees. It reads suffixes under
    the mask unless each token sees the whole suffix of its path, and a row before it.
    """
    prefix = suffixes[0].block.start if suffixes else visible.shape[1]
    everything: dict[tuple[int, bool], RowsRead] = {}
    readings = []
    for rows, (_, group, cascades) in zip(seen, kinds, strict=True):
        cascades = cascades and bool(suffixes)
        if rows is visible:
            end = prefix if cascades else rows.shape[1]
            all_rows = RowsRead(0, end, group, rows, suffixes if cascades else ())
            readings.append(everything.setdefault((group, cascades), all_rows))
            continue
        whole = cascades and bool((rows[:, prefix:] == visible[:, prefix:]).all())
        cascades = whole and bool(rows[:, :prefix].any(axis=1).all())
        end = prefix if cascades else rows.shape[1]
        first = 0 if padded else int(rows.any(axis=0).argmax())
        readings.append(RowsRead(first, end, group, rows[:, first:], suffixes if cascades else ()))
    for reading in dict.fromkeys(readings):
        reading.make_mask(shape, padded)
    return readings
