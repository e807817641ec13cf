"""Attention of tokens over lists of the rows that they see, by compiled code."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
