"""Recomputes freed K and V of a tree cache.

The bookkeeping of the cache stays as it was: which path sees which row, and the position of each
row. So a row keeps its number and its place in the tree, and it is recomputed once, however many
paths share it. The counters of the cache stay as if it had never been freed.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eab.caches.base import ForwardBatch
from eab.caches.rows_read import Reading, plan_readings, seen_by_kind
from eab.caches.shape import KVShape, to_device
from eab.caches.shared_prefix import AttendOwn, ReadPrefix


class PreemptionRecovery:
    """Serves the passes that recompute the rows; until the last one, the cache is not usable.

    Args:
        keys: K of each layer that has its own, (G, C, D); replaced when the passes start.
        values: V, likewise.
        visible: Which rows each path sees, (path indices, C).
        positions: The position of each row in its paths, (C,).
        texts: The tokens of each path, by its index; at least as many as the rows that it sees.

    Attributes:
        read_prefix: Returns what a pass reads of the prefix cache, given attention over these rows.
    """

    def __init__(
        self,
        shape: KVShape,
        keys: list[Tensor],
        values: list[Tensor],
        visible: NDArray[np.bool_],
        positions: NDArray[np.int64],
        texts: Mapping[int, Sequence[int]],
    ) -> None:
        self.read_prefix: Callable[[AttendOwn], ReadPrefix | None] = lambda _: None
        self._shape, self._tensors = shape, (keys, values)
        self._visible, self._positions = visible, positions
        self._tokens = np.zeros_like(positions)
        self._paths = np.full_like(positions, -1)  # one that sees the row; all share what precedes
        for path, text in texts.items():
            own = np.flatnonzero(visible[path] & (self._paths < 0))
            self._tokens[own], self._paths[own] = np.asarray(text)[positions[own]], path
        self._of_paths = [*texts]
        used = np.flatnonzero(self._paths >= 0)
        self._left = used[np.argsort(positions[used], kind="stable")]  # ancestors first
        self._rows = torch.empty(0)
        self._seen = visible
        self._slots, self._kinds = shape.slots, shape.mask_kinds
        self._readings: list[Reading] = []  # one for each kind of mask

    @property
    def rows_left(self) -> int:
        """How many rows are still to be recomputed."""
        return len(self._left)

    def rows_of_paths(self) -> list[NDArray[np.int64]]:
        """The rows that each path sees, in the order of its text; paths ordered as in `texts`."""
        rows = [np.flatnonzero(self._visible[path]) for path in self._of_paths]
        return [seen[np.argsort(self._positions[seen])] for seen in rows]

    def prepare(self, limit: int) -> ForwardBatch:
        """The batch of the next rows, at most `limit` of them."""
        now, self._left = self._left[:limit], self._left[limit:]
        return self.batch(now)

    def batch(self, now: NDArray[np.int64]) -> ForwardBatch:
        """The batch of these rows; the rows before them in their paths must be computed."""
        if not self._tensors[0][0].shape[1]:
            rows = len(self._positions)
            for tensors in self._tensors:  # zeroed, because 0 x NaN = NaN would leak through a mask
                tensors[:] = [old.new_zeros((old.shape[0], rows, old.shape[2])) for old in tensors]
        device, positions = self._shape.device, self._positions[now]
        visible = self._visible[self._paths[now]] & (self._positions <= positions[:, None])
        self._seen = visible
        seen = seen_by_kind(self._kinds, visible, positions, self._positions)
        self._readings = plan_readings(
            self._shape, self._kinds, seen, visible, self._positions, (), padded=False
        )
        self._rows, ids, at, last = to_device(
            device, now, self._tokens[now], positions, [len(now) - 1]
        )
        prefix = self.read_prefix(self.attend_own)
        return ForwardBatch(self, ids, at, last, (), prefix=prefix)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        keys, values = self._store(layer, key, value)
        kind = self._shape.layer(layer)
        return self._reading(layer).attend(query[0], keys, values, scale, kind)[None]

    def attend_own(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See `AttendOwn`."""
        keys, values = self._store(layer, key, value)
        return self._reading(layer).attend_with_lse(query[0], keys, values, scale)

    def _reading(self, layer: int) -> Reading:
        return self._readings[self._kinds.index(self._shape.mask_kind(layer))]

    def _store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = (tensors[self._slots[layer]] for tensors in self._tensors)
        if self._shape.layer(layer).source < 0:
            keys.index_copy_(1, self._rows, key[0])
            values.index_copy_(1, self._rows, value[0])
        return keys, values

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return self._store(layer, key, value)

    def visible_rows(self) -> tuple[Tensor, Tensor]:
        device = self._shape.device
        return torch.from_numpy(self._seen).to(device), torch.from_numpy(self._positions).to(device)
