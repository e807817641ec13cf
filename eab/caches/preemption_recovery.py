"""Recomputes freed K and V of a tree cache.

The bookkeeping of the cache stays as it was: which path sees which row, and the position of each
row. So a row keeps its number and its place in the tree, and it is recomputed once, however many
paths share it. The counters of the cache stay as if it had never been freed.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from eab.caches.base import ForwardBatch
from eab.caches.row_table import RowTable
from eab.caches.row_tensors import RowTensors
from eab.caches.shape import KVShape
from eab.caches.shared_prefix import AttendOwn, ReadPrefix


class PreemptionRecovery(RowTensors):
    """Serves the passes that recompute the rows; until the last one, the cache is not usable.

    Args:
        keys: K of each layer that has its own, (G, C, D); replaced when the passes start.
        values: V, likewise.
        table: Which path sees which row.
        texts: The tokens of each path; at least as many as the rows that it sees.

    Attributes:
        read_prefix: Returns what a pass reads of the prefix cache, given attention over these rows.
    """

    def __init__(
        self,
        shape: KVShape,
        keys: list[Tensor],
        values: list[Tensor],
        table: RowTable,
        texts: Mapping[int, Sequence[int]],
    ) -> None:
        super().__init__(shape)
        self.read_prefix: Callable[[AttendOwn], ReadPrefix | None] = lambda _: None
        self._keys, self._values, self._table = keys, values, table
        positions = table.positions
        self._tokens = np.zeros_like(positions)
        self._paths = np.full_like(positions, -1)  # one that sees the row; all share what precedes
        for path, text in texts.items():
            own = np.flatnonzero(table.visible[table.index[path]] & (self._paths < 0))
            self._tokens[own], self._paths[own] = np.asarray(text)[positions[own]], path
        used = table.used
        self._left = used[np.argsort(positions[used], kind="stable")]  # ancestors first

    @property
    def rows_left(self) -> int:
        """How many rows are still to be recomputed."""
        return len(self._left)

    def prepare(self, limit: int) -> ForwardBatch:
        """The batch of the next rows, at most `limit` of them."""
        now, self._left = self._left[:limit], self._left[limit:]
        return self.batch(now)

    def batch(self, now: NDArray[np.int64]) -> ForwardBatch:
        """The batch of these rows; the rows before them in their paths must be computed."""
        table = self._table
        if not self._keys[0].shape[1]:
            rows = len(table.positions)
            for tensors in (self._keys, self._values):
                # zeroed, because 0 x NaN = NaN would leak through a mask
                tensors[:] = [old.new_zeros((old.shape[0], rows, old.shape[2])) for old in tensors]
        positions, paths = table.positions[now], [table.index[path] for path in self._paths[now]]
        visible = table.visible[paths] & (table.positions <= positions[:, None])
        self._show(visible, positions, table.positions)
        self._rows, ids, at, last = self._place(now, self._tokens[now], positions, [len(now) - 1])
        prefix = self.read_prefix(self.attend_own)
        return ForwardBatch(self, ids, at, last, (), prefix=prefix)
