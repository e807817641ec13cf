"""The tree cache: all paths of a run in one set of rows, shared copy-on-write without any copy.

A row is written once, in place, and is visible to every path that descends from its token. A fork copies no K or V:
the child sees the parent's rows. Rows that no path sees any more are free and are used again, lowest first, so which
row a token gets does not depend on how many spare rows there are. The tensors grow by r steps' worth of rows at a
time (BMC, arXiv 2511.12031).
"""

import heapq
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from eab.caches.base import Growth, KVShape, KVUsage, Pass
from eab.caches.ledger import Ledger, check_limit
from eab.events import PathRows


class TreeCache:
    """Copy-on-write rows for one run.

    shape: what a row holds. r: growth in decode steps' worth of rows. byte_limit: MemoryLimitError instead of growing
    past it.
    """

    def __init__(self, shape: KVShape, r: int, byte_limit: int) -> None:
        self.shape, self.r, self.byte_limit = shape, r, byte_limit
        self._ledger = Ledger()
        self._keys = [self._empty(0) for _ in range(shape.layers)]  # (G, C, D) each
        self._values = [self._empty(0) for _ in range(shape.layers)]
        self._visible = np.zeros((1, 0), dtype=np.bool_)  # (slots, C): which rows a path sees
        self._position = np.zeros(0, dtype=np.int64)  # (C,): position of the row's token in its path
        self._owners = np.zeros(0, dtype=np.int64)  # (C,): how many paths see the row
        self._free: list[int] = []  # heap
        self._slots = {0: 0}  # path -> line of _visible
        self._free_slots: list[int] = []
        self._length = {0: 0}
        self._rows = torch.empty(0, dtype=torch.int64)  # (T,) rows of the pass being computed
        self._mask = torch.empty(0)  # (H / G * T, window), added to the scores
        self._window = 0
        self._seen = torch.empty(0, dtype=torch.bool)

    @property
    def rows(self) -> int:
        """Rows that the tensors hold."""
        return len(self._owners)

    @property
    def bytes_held(self) -> int:
        """Bytes of all K and V tensors, measured."""
        return sum(tensor.nbytes for tensor in (*self._keys, *self._values))

    def reserve(self, rows: int, steps: int) -> Growth | None:
        """See KVCache.reserve: no rows for steps that never come."""
        self.r = min(self.r, steps)
        return self._grow(rows - self.rows) if rows > self.rows else None

    def pack(self, paths: Sequence[int], tokens: Sequence[Sequence[int]]) -> Pass:
        """See KVCache.pack. Rows of siblings stay invisible to each other, also within the pass."""
        counts = np.array([len(new) for new in tokens])
        total, growth = int(counts.sum()), None
        if total > len(self._free):
            growth = self._grow(max(self.r * len(paths), total - len(self._free)))
        rows = np.array([heapq.heappop(self._free) for _ in range(total)], dtype=np.int64)
        positions, seen = self._place(paths, counts, rows)
        self._window = int(np.flatnonzero(self._owners)[-1]) + 1
        device = self.shape.device
        self._rows = torch.from_numpy(rows).to(device)
        self._seen = torch.from_numpy(seen[:, : self._window]).to(device)
        self._mask = torch.empty(0)
        return Pass(
            cache=self,
            ids=torch.tensor([token for new in tokens for token in new], device=device),
            positions=torch.from_numpy(positions).to(device),
            keep=torch.from_numpy(np.cumsum(counts) - 1).to(device),
            growth=growth,
        )

    def _place(
        self, paths: Sequence[int], counts: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Give each new token its row; -> positions (T,), and which rows each token sees (T, C)."""
        first = np.cumsum(counts) - counts
        slots = np.array([self._slots[path] for path in paths])
        lengths = np.array([self._length[path] for path in paths])
        positions = np.empty(len(rows), dtype=np.int64)
        seen = np.empty((len(rows), self.rows), dtype=np.bool_)
        for offset in range(int(counts.max())):  # the offset-th new token of every path that has one
            has = counts > offset
            token = first[has] + offset
            self._visible[slots[has], rows[token]] = True
            seen[token] = self._visible[slots[has]]
            positions[token] = lengths[has] + offset
        self._owners[rows] = 1
        self._position[rows] = positions
        for path, count in zip(paths, counts, strict=True):
            self._length[path] += int(count)
        return positions, seen

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """See KVCache.attend. Query heads of a group become query rows, so K and V are not expanded per query head."""
        keys, values = self._keys[layer], self._values[layer]
        keys.index_copy_(1, self._rows, key[0])
        values.index_copy_(1, self._rows, value[0])
        _, heads, length, size = query.shape
        group = heads // self.shape.kv_heads
        if self._mask.numel() == 0:  # once per pass, for all layers
            blocked = torch.zeros(self._seen.shape, dtype=query.dtype, device=query.device)
            self._mask = blocked.masked_fill_(~self._seen, float("-inf")).repeat(group, 1)
        out = functional.scaled_dot_product_attention(
            query.reshape(1, self.shape.kv_heads, group * length, size),
            keys[None, :, : self._window],
            values[None, :, : self._window],
            attn_mask=self._mask,
            scale=scale,
        )
        return out.view(1, heads, length, size).transpose(1, 2)

    def fork(self, path: int, children: Sequence[int]) -> None:
        """See KVCache.fork: books only, no K or V is touched."""
        slot, length = self._slots.pop(path), self._length.pop(path)
        self._owners += self._visible[slot] * (len(children) - 1)
        slots = [slot, *(self._new_slot() for _ in children[1:])]
        self._visible[slots] = self._visible[slot]
        for child, child_slot in zip(children, slots, strict=True):
            self._slots[child], self._length[child] = child_slot, length

    def release(self, path: int) -> None:
        """See KVCache.release."""
        slot = self._slots.pop(path)
        del self._length[path]
        self._hide(slot, self._visible[slot].copy())
        self._free_slots.append(slot)

    def trim(self, path: int, length: int) -> None:
        """See KVCache.trim: books only."""
        slot = self._slots[path]
        self._hide(slot, self._visible[slot] & (self._position >= length))
        self._length[path] = min(self._length[path], length)

    def _hide(self, slot: int, rows: NDArray[np.bool_]) -> None:
        self._visible[slot] &= ~rows
        self._owners -= rows
        for row in np.flatnonzero(rows & (self._owners == 0)):
            heapq.heappush(self._free, int(row))

    def usage(self, paths: Sequence[int]) -> KVUsage:
        """See KVCache.usage. Independent: the same paths with a cache each."""
        shared = self._owners > 1
        seen = self._visible[[self._slots[path] for path in paths]]
        common = (seen & shared).sum(axis=1)
        own = (seen & ~shared).sum(axis=1)
        rows_shared, rows_used = int(shared.sum()), int((self._owners > 0).sum())
        return KVUsage(
            bytes_held=self.bytes_held,
            rows_shared=rows_shared,
            rows_private=rows_used - rows_shared,
            rows_spare=self.rows - rows_used,
            rows_independent=sum(self._length[path] for path in paths),
            paths=tuple(PathRows(*map(int, row)) for row in zip(paths, common, own, strict=True)),
            **self._ledger.totals(),
        )

    def _new_slot(self) -> int:
        if not self._free_slots:
            old = len(self._visible)
            self._visible = np.concatenate([self._visible, np.zeros_like(self._visible)])
            self._free_slots = list(range(2 * old - 1, old - 1, -1))
        slot = self._free_slots.pop()
        return slot

    def _grow(self, more: int) -> Growth:
        """Append `more` zeroed rows (0 x NaN = NaN would leak through the mask), one tensor at a time."""
        before, rows, held = self.bytes_held, self.rows + more, self.rows
        check_limit(rows * self.shape.row_bytes, self.byte_limit, "a smaller r")
        for tensors in (self._keys, self._values):
            for layer, old in enumerate(tensors):
                tensors[layer] = self._empty(rows)
                tensors[layer][:, :held] = old
                self._ledger.replaced(old, tensors[layer], copied=old.nbytes)
        self._visible = np.pad(self._visible, ((0, 0), (0, more)))
        self._position = np.pad(self._position, (0, more))
        self._owners = np.pad(self._owners, (0, more))
        for row in range(held, rows):
            heapq.heappush(self._free, row)
        return Growth(rows, held, before, self._ledger.peak_bytes)

    def _empty(self, rows: int) -> Tensor:
        shape = (self.shape.kv_heads, rows, self.shape.head_dim)
        return torch.zeros(shape, dtype=self.shape.dtype, device=self.shape.device)
