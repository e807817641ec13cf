"""Attention in plain PyTorch: over all rows under a mask, or over each token's rows, gathered."""

from abc import abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eab.caches.attention import attention_mask, attention_with_lse, by_group, masked_attention
from eab.caches.layers import LayerAttention
from eab.caches.listed_rows import lists_of_rows
from eab.caches.shape import KVShape, to_device


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
        """See Reading."""
        out = masked_attention(*self._inputs(query, keys, values), scale, layer)
        return self._by_token(out, len(keys))

    def attend_with_lse(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See Reading."""
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


def masked_rows(
    shape: KVShape, seen: NDArray[np.bool_], placed: Tensor, padded: bool
) -> MaskedRows:
    """The rows that each token sees, (T, C), under a mask; without padding, from the first row that
    some token sees.

    Args:
        placed: `seen` on the device.
    """
    first, end = 0, seen.shape[1]
    if not padded:
        first = int(seen.any(axis=0).argmax())  # later if the layer reads only the last tokens
        if seen[:, first:].all():
            return MaskedRows(first, end, None)
    return MaskedRows(first, end, attention_mask(placed[:, first:], shape.dtype))


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
        self._rows, filled_in = to_device(device, table.ravel(), filled)
        self._filled = None if filled.all() else filled_in  # (T, L)
        self._tokens = len(seen)
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
