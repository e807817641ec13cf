"""The rows that layers of one kind read in a prepared batch of the tree cache.

Compiled code reads a list of the rows that each token sees. The plain way is PyTorch's: all rows
under a mask or, if that reads less, the rows of each token gathered into one batch.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

from eab.engine.caches.attention import (
    attention_mask,
    attention_with_lse,
    by_group,
    masked_attention,
)
from eab.engine.caches.row_table import RowLists
from eab.engine.caches.shape import KVShape, LayerAttention, MaskKind, to_device


class ListedRows:
    """The rows that each token reads, in a list for compiled code, on the CPU; at least one row for
    each token.
    """

    def __init__(self, lists: RowLists) -> None:
        self._rows, self._starts = map(torch.from_numpy, lists)

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float, layer: LayerAttention
    ) -> Tensor:
        """See PlainRows."""
        return self._attend(query, keys, values, scale)[0]

    def attend_with_lse(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See PlainRows."""
        out, lse = self._attend(query, keys, values, scale)
        return out.transpose(0, 1), lse.t()

    def _attend(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        from eab.engine.compiled.attention import attend  # needs llvmlite

        return attend(query, keys, values, self._rows, self._starts, scale)


class PlainRows:
    """The rows that a prepared batch reads in layers of one kind."""

    @abstractmethod
    def _inputs(
        self, query: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries, keys, values and mask of one attention call."""

    @abstractmethod
    def _by_token(self, out: Tensor, groups: int) -> Tensor:
        """The output of that call, as (T, H, D)."""

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float, layer: LayerAttention
    ) -> Tensor:
        """The output of attention, (T, H, D); query (H, T, D), K and V of all rows, (G, C, D)."""
        out = masked_attention(*self._inputs(query, keys, values), scale, layer)
        return self._by_token(out, len(keys))

    def attend_with_lse(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """The same for an ordinary layer on a CPU, (H, T, D), and the log-sum-exp of the scores,
        (H, T).
        """
        found = attention_with_lse(*self._inputs(query, keys, values), scale)
        out, lse = (self._by_token(each, len(keys)) for each in (found[0], found[1][..., None]))
        return out.transpose(0, 1), lse[..., 0].t()


class MaskedRows(PlainRows):
    """The rows from `first` to `end` under a mask.

    Args:
        mask: Added to the scores, (T, rows); None if every token sees all of these rows.
    """

    def __init__(self, first: int, end: int, mask: Tensor | None) -> None:
        self.first, self.end, self.mask = first, end, mask

    def _inputs(
        self, query: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        rows = slice(self.first, self.end)
        return by_group(query, len(keys)), keys[:, rows], values[:, rows], self.mask

    def _by_token(self, out: Tensor, groups: int) -> Tensor:
        return out.permute(2, 0, 1, 3).flatten(1, 2)


def masked_rows(shape: KVShape, lists: RowLists, end: int, padded: bool) -> MaskedRows:
    """The rows before `end` under a mask; without padding, from the first row that some token
    reads.
    """
    first, tokens = 0, len(lists.starts) - 1
    if not padded:
        first = int(lists.rows.min())  # later if the layer reads only the last tokens
        if len(lists.rows) == tokens * (end - first):
            return MaskedRows(first, end, None)
    [seen] = to_device(shape.device, lists.mask(end)[:, first:])
    return MaskedRows(first, end, attention_mask(seen, shape.dtype))


class GatheredRows(PlainRows):
    """The rows of each token, copied into one batch of texts; a mask fills up the shorter ones."""

    def __init__(self, lists: RowLists, device: torch.device) -> None:
        lengths = np.diff(lists.starts)
        filled = np.arange(lengths.max()) < lengths[:, None]
        table = np.zeros(filled.shape, dtype=np.int64)
        table[filled] = lists.rows
        self._rows, filled_in = to_device(device, table.ravel(), filled)
        self._filled = None if filled.all() else filled_in  # (T, L)
        self._tokens = len(lengths)
        self._room: dict[tuple[int, ...], Tensor] = {}  # for all layers: new memory takes time

    def _inputs(
        self, query: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries by KV head and token, (G * T, 1, g, D), K and V, (G * T, L, D), and their mask,
        (G * T, 1, 1, L).
        """
        asking = by_group(query, len(keys)).transpose(1, 2).flatten(0, 1)[:, None]
        mask = None
        if self._filled is not None:
            mask = attention_mask(self._filled, query.dtype)
            mask = mask.repeat(len(keys), 1)[:, None, None]
        return asking, self._gathered(keys, 0), self._gathered(values, 1), mask

    def _gathered(self, rows: Tensor, place: int) -> Tensor:
        """The rows of each token and KV head, (G * T, L, D)."""
        groups, _, size = rows.shape
        key = (place, groups, size)
        if key not in self._room:
            self._room[key] = rows.new_empty((groups, len(self._rows), size))
        torch.index_select(rows, 1, self._rows, out=self._room[key])
        return self._room[key].view(groups * self._tokens, -1, size)

    def _by_token(self, out: Tensor, groups: int) -> Tensor:
        out = out.view(groups, self._tokens, *out.shape[2:])
        return out.transpose(0, 1).flatten(1, 2)


# Costs in units of one row that one token reads under a mask. They are
# fixed, because the same run must round in the same way every time.
GATHERED_ROW_COST: Final = 8  # copied, and read by one token only
FEW_TOKENS: Final = 4  # with fewer, reading the rows from memory takes the time


Reading: TypeAlias = ListedRows | PlainRows


def plan_readings(
    shape: KVShape, kinds: Sequence[MaskKind], lists: Sequence[RowLists], end: int, padded: bool
) -> list[Reading]:
    """How the layers of each kind read the rows before `end` that are listed for them. Padded
    attention reads all of them under a mask, so its shapes stay the same until the tensors grow.
    """
    made: dict[tuple[object, ...], Reading] = {}
    for own, kind in zip(lists, kinds, strict=True):
        key = (id(own), *kind[1:])
        if key in made:
            continue
        if kind.is_compiled and not padded:
            made[key] = ListedRows(own)
        elif kind.is_fused and not padded and gathering_reads_less(own, end):
            made[key] = GatheredRows(own, shape.device)
        else:
            made[key] = masked_rows(shape, own, end, padded)
    return [made[id(own), *kind[1:]] for own, kind in zip(lists, kinds, strict=True)]


def gathering_reads_less(lists: RowLists, end: int) -> bool:
    """Whether gathering the rows that each token reads reads less than a mask over all of them."""
    counts = np.diff(lists.starts)
    gathered = len(counts) * int(counts.max()) * GATHERED_ROW_COST
    return gathered < end * max(len(counts), FEW_TOKENS)
