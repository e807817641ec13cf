"""Move rows of K and V tensors without a second copy of all of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from eab.caches.ledger import Ledger


def reorder(tensors: Sequence[Tensor], order: Tensor, first: int, ledger: Ledger) -> None:
    """Move row `order[i]` of each tensor, (G, C, D), to row `first + i`.

    It works head by head, because a copy of one head fits in the processor's cache and in memory
    that the process already has; new memory costs more time than copying.
    """
    for tensor in tensors:
        for head in tensor:
            moved = head.index_select(0, order)
            ledger.allocated(moved, copied=moved.nbytes)
            head[first : first + len(order)] = moved
            ledger.freed(moved)


def resize(tensors: list[Tensor], order: Tensor, first: int, rows: int, ledger: Ledger) -> None:
    """Replace each tensor, one at a time, by one of `rows` rows: the `first` leading rows, those
    of `order`, and zeroed rows, because 0 x NaN = NaN would leak through a mask.
    """
    end = first + len(order)
    for slot, old in enumerate(tensors):
        tensors[slot] = new = old.new_empty((old.shape[0], rows, old.shape[2]))
        new[:, :first] = old[:, :first]
        for before, after in zip(old, new, strict=True):
            after[first:end] = before.index_select(0, order)
        new[:, end:].zero_()
        ledger.replaced(old, new, copied=new[:, :end].nbytes)


def in_order(per_row: NDArray[Any], order: NDArray[np.int64], rows: int) -> NDArray[Any]:
    """Values per row, (..., C), in the order of the moved rows; further rows get zero."""
    new = np.zeros((*per_row.shape[:-1], rows), dtype=per_row.dtype)
    new[..., : len(order)] = per_row[..., order]
    return new
