"""K and V tensors on a GPU that runs borrow in turn, so that CUDA graphs outlast a run.

A CUDA graph reads and writes fixed addresses. So the tensors of a run, with the static buffers of
its batches, are kept when they have been replaced or the run has ended, and a later run that needs
as many rows takes them, with their graphs. Rows come in whole blocks, because equal numbers recur.
"""

import threading
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from eab.caches.shape import KVShape
from eab.caches.static_buffers import StaticBufferPool

BLOCK: Final = 128  # rows
MAX_KEPT: Final = 12  # sets of tensors; each has a stream of its own (eab.models.cuda_graphs)


@dataclass(frozen=True, eq=False, slots=True)
class RowSet:
    """The tensors of one run, (G, C, D) for each layer that has its own, and their buffers."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    buffers: StaticBufferPool
    era: int  # how often the pool had been cleared

    @property
    def rows(self) -> int:
        """Rows that the tensors hold."""
        return int(self.keys[0].shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))


class KVPool:
    """The tensors of a model that no run uses, the latest last."""

    def __init__(self, shape: KVShape, byte_limit: int) -> None:
        """Make an empty pool, which keeps at most this many bytes."""
        self._shape, self._byte_limit, self._kept = shape, byte_limit, list[RowSet]()
        self._lock = threading.RLock()  # a run may be collected, and give back, in any thread
        self._era = 0

    @staticmethod
    def in_blocks(rows: int) -> int:
        """The rows, rounded up to whole blocks."""
        return -(-rows // BLOCK) * BLOCK

    def take(self, rows: int) -> RowSet:
        """Tensors of this number of rows, with any content."""
        with self._lock:
            for own in reversed(self._kept):
                if own.rows == rows:
                    self._kept.remove(own)
                    return own
        try:
            return self._new(rows)
        except torch.OutOfMemoryError:
            self.clear()
        return self._new(rows)  # outside the handler, which keeps tensors alive

    def _new(self, rows: int) -> RowSet:
        keys, values = map(tuple, self._shape.empty_tensors(rows))
        return RowSet(keys, values, StaticBufferPool(self._shape, rows), self._era)

    def give_back(self, own: RowSet) -> None:
        """Keep the tensors; where that is too much, those that have waited longest are freed."""
        with self._lock:
            if own.era == self._era:
                self._kept.append(own)
            while len(self._kept) > MAX_KEPT or self._bytes > self._byte_limit:
                del self._kept[0]

    @property
    def _bytes(self) -> int:
        return sum(each.nbytes for each in self._kept)

    def clear(self) -> None:
        """Free all tensors that no run uses, and those of running runs when these end."""
        with self._lock:
            self._kept.clear()
            self._era += 1
