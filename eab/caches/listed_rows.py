"""Attention of tokens over their own rows alone: in a list for compiled code, or gathered."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eab.caches.attention import attention_with_lse, masked_attention
from eab.caches.layers import LayerAttention


def lists_of_rows(
    seen: NDArray[np.bool_], positions: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows that each token sees, (T, C), token after token, and where those of each token
    start, (T + 1,).

    They are listed by their positions, (C,), so the sums of a token do not depend on which rows
    its path has been given; None if the rows lie in this order.
    """
    tokens, rows = seen.shape
    order = np.arange(rows)
    if positions is not None and (positions[1:] < positions[:-1]).any():
        order = np.argsort(positions, kind="stable")
        seen = seen[:, order]
    flat = np.flatnonzero(seen)
    return order[flat % rows], np.searchsorted(flat, np.arange(tokens + 1) * rows)


class ListedRows:
    """The rows that each token sees, in a list for compiled code."""

    def __init__(self, seen: NDArray[np.bool_], positions: NDArray[np.int64] | None = None) -> None:
        """See `lists_of_rows`; on the CPU, and at least one row for each token."""
        rows, starts = lists_of_rows(seen, positions)
        self._rows, self._starts = torch.from_numpy(rows), torch.from_numpy(starts)

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float, layer: LayerAttention
    ) -> Tensor:
        """See Reading."""
        return self._attend(query, keys, values, scale)[0]

    def attend_with_lse(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See Reading."""
        out, lse = self._attend(query, keys, values, scale)
        return out.transpose(0, 1), lse.t()

    def _attend(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        from eab.compiled.attention import attend  # needs llvmlite

        return attend(query, keys, values, self._rows, self._starts, scale)


class GatheredRows:
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

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float, layer: LayerAttention
    ) -> Tensor:
        """See Reading."""
        asking, mask = self._folded(query, keys)
        out = masked_attention(
            asking, self._gathered(keys, 0), self._gathered(values, 1), mask, scale, layer
        )
        return self._by_head(out, query).transpose(0, 1)

    def attend_with_lse(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See Reading."""
        asking, mask = self._folded(query, keys)
        out, lse = attention_with_lse(
            asking, self._gathered(keys, 0), self._gathered(values, 1), mask, scale
        )
        return self._by_head(out, query), self._by_head(lse[..., None], query)[..., 0]

    def _folded(self, query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor | None]:
        """Queries by KV head and token, (G * T, g, D), and their mask, (1, G * T, 1, L)."""
        groups, (_, tokens, size) = len(keys), query.shape
        asking = query.reshape(groups, -1, tokens, size).transpose(1, 2)
        asking = asking.reshape(groups * tokens, -1, size)
        if self._hidden is None:
            return asking, None
        mask = query.new_zeros(self._hidden.shape).masked_fill_(self._hidden, float("-inf"))
        return asking, mask[None, :, None].repeat(1, groups, 1, 1)

    def _gathered(self, rows: Tensor, place: int) -> Tensor:
        """The rows of each token and KV head, (G * T, L, D)."""
        groups, _, size = rows.shape
        key = (place, groups, size)
        if key not in self._room:
            self._room[key] = rows.new_empty((groups, len(self._rows), size))
        torch.index_select(rows, 1, self._rows, out=self._room[key])
        return self._room[key].view(groups * self._tokens, -1, size)

    def _by_head(self, out: Tensor, query: Tensor) -> Tensor:
        """(G * T, g, D) as (H, T, D)."""
        heads, tokens, _ = query.shape
        by_token = out.reshape(-1, tokens, *out.shape[1:])
        return by_token.transpose(1, 2).reshape(heads, tokens, -1)
