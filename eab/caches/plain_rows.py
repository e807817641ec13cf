"""Attention in plain PyTorch: over all rows under a mask, or over each token's rows, gathered."""

from abc import abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eab.caches.attention import attention_mask, attention_with_lse, by_group, masked_attention
from eab.caches.layers import LayerAttention
from eab.caches.listed_rows import lists_of_rows
from eab.caches.shape import KVShape


class PlainRows:
    """The rows that a prepared batch reads in layers of one kind."""

    @abstractmethod
    def _inputs(
        self, query: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries, keys, values and mask of one attention call."""

    @abstractmethod
    def _by_head(self, out: Tensor, query: Tensor) -> Tensor:
        """The output of that call, as (H, T, D)."""

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float, layer: LayerAttention
    ) -> Tensor:
        """See Reading."""
        out = masked_attention(*self._inputs(query, keys, values), scale, layer)
        return self._by_head(out, query).transpose(0, 1)

    def attend_with_lse(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See Reading."""
        out, lse = attention_with_lse(*self._inputs(query, keys, values), scale)
        return self._by_head(out, query), self._by_head(lse[..., None], query)[..., 0]


class MaskedRows(PlainRows):
    """The rows from `first` to `end` under a mask.

    Args:
        mask: Added to the scores, (H / G * T, rows); None if every token sees all of these rows.
    """

    def __init__(self, first: int, end: int, mask: Tensor | None) -> None:
        self.first, self.end, self.mask = first, end, mask

    def _inputs(
        self, query: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        rows = slice(self.first, self.end)
        return by_group(query, keys), keys[:, rows], values[:, rows], self.mask

    def _by_head(self, out: Tensor, query: Tensor) -> Tensor:
        # Not view(): it fails for the layout that CUDA's kernels return.
        return out.reshape(*query.shape[:2], -1)


def masked_rows(shape: KVShape, group: int, seen: NDArray[np.bool_], padded: bool) -> MaskedRows:
    """The rows that each token sees, (T, C), under a mask for `group` query heads per KV head;
    without padding, from the first row that some token sees.
    """
    first, end = 0, seen.shape[1]
    if not padded:
        first = int(seen.any(axis=0).argmax())  # later if the layer reads only the last tokens
        seen = seen[:, first:]
        if seen.all():
            return MaskedRows(first, end, None)
    mask = attention_mask(torch.from_numpy(seen).to(shape.device), group, shape.dtype)
    return MaskedRows(first, end, mask)


class GatheredRows(PlainRows):
    """The rows of each token, copied into one batch of texts; a mask fills up the shorter ones."""

    def __init__(
        self, seen: NDArray[np.bool_], positions: NDArray[np.int64], device: torch.device
    ) -> None:
        """See `lists_of_rows`."""
        rows, starts = lists_of_rows(seen, positions)
        lengths = np.diff(starts)
        filled = np.arange(lengths.max()) < lengths[:, None]
        table = np.zeros(filled.shape, dtype=np.int64)
        table[filled] = rows
        self._rows = torch.from_numpy(table.ravel()).to(device)
        self._hidden = None if filled.all() else torch.from_numpy(~filled).to(device)  # (T, L)
        self._tokens = len(seen)
        self._room: dict[tuple[int, ...], Tensor] = {}  # for all layers: new memory takes time

    def _inputs(
        self, query: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries by KV head and token, (G * T, g, D), K and V, (G * T, L, D), and their mask,
        (1, G * T, 1, L).
        """
        groups, (_, tokens, size) = len(keys), query.shape
        asking = query.reshape(groups, -1, tokens, size).transpose(1, 2)
        asking = asking.reshape(groups * tokens, -1, size)
        mask = None
        if self._hidden is not None:
            mask = query.new_zeros(self._hidden.shape).masked_fill_(self._hidden, float("-inf"))
            mask = mask[None, :, None].repeat(1, groups, 1, 1)
        return asking, self._gathered(keys, 0), self._gathered(values, 1), mask

    def _gathered(self, rows: Tensor, place: int) -> Tensor:
        """The rows of each token and KV head, (G * T, L, D)."""
        groups, _, size = rows.shape
        key = (place, groups, size)
        if key not in self._room:
            self._room[key] = rows.new_empty((groups, len(self._rows), size))
        torch.index_select(rows, 1, self._rows, out=self._room[key])
        return self._room[key].view(groups * self._tokens, -1, size)

    def _by_head(self, out: Tensor, query: Tensor) -> Tensor:
        heads, tokens, _ = query.shape
        by_token = out.reshape(-1, tokens, *out.shape[1:])
        return by_token.transpose(1, 2).reshape(heads, tokens, -1)
