"""The rows that layers of one kind read in a prepared batch of the tree cache."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eab.caches.attention import (
    SuffixIndex,
    attention_mask,
    attention_with_lse,
    by_group,
    cascade_attention,
    masked_attention,
)
from eab.caches.cascade import SuffixQueries
from eab.caches.layers import LayerAttention, MaskKind
from eab.caches.listed_rows import ListedRows
from eab.caches.shape import KVShape


class Reading(Protocol):
    """The rows that a prepared batch reads in some of the layers.

    The query is (H, T, D), keys and values are those of all rows, (G, C, D).
    """

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float, layer: LayerAttention
    ) -> Tensor:
        """The output of attention, (T, H, D)."""

    def attend_with_lse(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """The same for an ordinary layer on a CPU, (H, T, D), and the log-sum-exp of the scores,
        (H, T).
        """


@dataclass(slots=True, eq=False)
class MaskedRows:
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
        """See Reading."""
        if self.suffixes:
            return self.attend_with_lse(query, keys, values, scale)[0].transpose(0, 1)
        rows, folded = slice(self.first, self.end), by_group(query, keys)
        out = masked_attention(folded, keys[:, rows], values[:, rows], self.mask, scale, layer)
        return out.reshape(*query.shape[:2], -1).transpose(0, 1)

    def attend_with_lse(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See Reading."""
        folded = by_group(query, keys)
        if self.suffixes:
            out, lse = cascade_attention(
                folded, keys, values, self.mask, scale, self.suffixes, self.first, self.tail
            )
        else:
            rows = slice(self.first, self.end)
            out, lse = attention_with_lse(folded, keys[:, rows], values[:, rows], self.mask, scale)
        return out.reshape(query.shape), lse.reshape(query.shape[:2])


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
        for reach, *_ in kinds
    ]


def plan_readings(
    shape: KVShape,
    kinds: Sequence[MaskKind],
    seen: Sequence[NDArray[np.bool_]],
    visible: NDArray[np.bool_],
    row_positions: NDArray[np.int64],
    chain: Sequence[SuffixQueries],
    padded: bool,
) -> list[Reading]:
    """What the layers of each of these kinds read, from `seen_by_kind` and its arguments; `chain`
    is what may be read as suffixes.
    """
    masked = padded or not all(kind.is_compiled for kind in kinds)
    suffixes = [SuffixIndex(part, shape.device) for part in chain] if masked else []
    made: dict[tuple[int, ...], Reading] = {}
    readings = []
    for rows, kind in zip(seen, kinds, strict=True):
        listed = kind.is_compiled and not padded
        key = (id(rows),) if listed else (id(rows), kind.group, kind.cascades)
        if key not in made:
            own = suffixes if kind.cascades else ()
            made[key] = (
                ListedRows(rows, row_positions)
                if listed
                else _masked_rows(shape, kind.group, rows, visible, own, padded)
            )
        readings.append(made[key])
    return readings


def _masked_rows(
    shape: KVShape,
    group: int,
    rows: NDArray[np.bool_],
    visible: NDArray[np.bool_],
    suffixes: Sequence[SuffixIndex],
    padded: bool,
) -> MaskedRows:
    """A layer with limited reach starts at the first row that some token sees. It reads suffixes
    under the mask unless each token sees the whole suffix of its path, and a row before it.
    """
    first, end = 0, rows.shape[1]
    if suffixes and rows is not visible:
        prefix = suffixes[0].block.start
        whole = bool((rows[:, prefix:] == visible[:, prefix:]).all())
        suffixes = suffixes if whole and bool(rows[:, :prefix].any(axis=1).all()) else ()
    if suffixes:
        end = suffixes[0].block.start
    if rows is not visible and not padded:
        first = int(rows.any(axis=0).argmax())
    reading = MaskedRows(first, end, group, rows[:, first:], suffixes)
    reading.make_mask(shape, padded)
    return reading
