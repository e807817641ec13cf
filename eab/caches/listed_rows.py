"""The rows that each token of a batch sees, in a list for compiled code."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eab.caches.layers import LayerAttention


class ListedRows:
    """The rows that each token sees, in a list for compiled code."""

    def __init__(self, seen: NDArray[np.bool_], positions: NDArray[np.int64] | None = None) -> None:
        """List the rows that each token sees, (T, C); on the CPU, and at least one each.

        They are listed by their positions, (C,), so the sums of a token do not depend on which rows
        its path has been given; None if the rows lie in this order.
        """
        tokens, rows = seen.shape
        order = np.arange(rows)
        if positions is not None and (positions[1:] < positions[:-1]).any():
            order = np.argsort(positions, kind="stable")
            seen = seen[:, order]
        flat = np.flatnonzero(seen)
        self._rows = torch.from_numpy(order[flat % rows])
        self._starts = torch.from_numpy(np.searchsorted(flat, np.arange(tokens + 1) * rows))

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
