"""The tree cache: all paths of a run in one set of rows, shared copy-on-write without any copy.

A row is written once, in place, and is visible to every path that descends from its token. A fork
copies no K or V: the child sees the parent's rows. Rows that no path sees any more are free. They
are used again lowest first, or, while it pays to keep each path's rows in a lane (see `lanes`),
when a quarter of the rows is free and the others move up. Neither depends on how many spare rows
there are, so r never changes which rows are computed with. The tensors grow by r steps' worth of
rows at a time (BMC, arXiv 2511.12031).

Spare rows cost compute only if the kernel visits them. Sliced, attention ends at the last row that
was ever given to a token; padded, it visits every row that the tensors hold, the spare ones under
the mask, so that its shapes change only when the tensors grow. On CUDA such passes are written into
frames (see `frame`) and can be captured.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eab.caches.attention import SuffixIndex, masked_pass, split_pass
from eab.caches.base import ForwardBatch, wanted_lines
from eab.caches.cascade import SuffixBlock, compacted, extended, worthwhile
from eab.caches.growth import GrowthRule
from eab.caches.ledger import Ledger, check_limit
from eab.caches.shape import KVShape
from eab.caches.static_buffers import StaticBufferPool, StaticBuffers
from eab.events import Growth, KVUsage, PathRows


class TreeCache:
    """Copy-on-write rows for one run.

    shape: what a row holds. r: growth in decode steps' worth of rows, a number or a rule asked at
    each growth.
    byte_limit: MemoryLimitError instead of growing past it. padded: attention visits the spare rows
    too.
    """

    def __init__(
        self, shape: KVShape, r: int | GrowthRule, byte_limit: int, padded: bool = False
    ) -> None:
        self.shape, self.r, self.byte_limit, self.padded = shape, r, byte_limit, padded
        self._steps: int | None = None  # how many are still to come, if it is known
        self._ledger = Ledger()
        self._keys = [self._empty(0) for _ in range(shape.layers)]  # (G, C, D) each
        self._values = [self._empty(0) for _ in range(shape.layers)]
        self._visible = np.zeros((1, 0), dtype=np.bool_)  # (slots, C): which rows a path sees
        self._position = np.zeros(
            0, dtype=np.int64
        )  # (C,): position of the row's token in its path
        self._owners = np.zeros(0, dtype=np.int64)  # (C,): how many paths see the row
        self._end = 0  # the rows from here on have not been given to any token
        self._slots = {0: 0}  # path -> line of _visible
        self._free_slots: list[int] = []
        self._length = {0: 0}
        self._stretches: list[SuffixBlock] = []
        self._untold: list[Growth] = []  # rows moved up for a pass that then found no room
        self._frames = StaticBufferPool(shape, 0)
        # The pass being computed: its frame if it has one, else its rows (T,) and what it attends
        # to
        self._frame: StaticBuffers | None = None
        self._rows = torch.empty(0, dtype=torch.int64)
        self._first_row: int | None = None  # if they follow each other
        self._seen = torch.empty(
            0, dtype=torch.bool
        )  # (T, rows before the first lane), in the host's memory
        self._mask: Tensor | None = None  # (H / G * T, the same), added to the scores
        self._masked = False  # whether _mask is made for this pass
        self._lanes: list[SuffixIndex] = []

    @property
    def rows(self) -> int:
        """Rows that the tensors hold."""
        return len(self._owners)

    @property
    def _visited(self) -> int:
        """How many rows one masked pass visits."""
        return self.rows if self.padded else self._end

    @property
    def bytes_held(self) -> int:
        """Bytes of all K and V tensors, measured."""
        return sum(tensor.nbytes for tensor in (*self._keys, *self._values))

    def reserve(self, rows: int, steps: int) -> Growth | None:
        """See KVCache.reserve: no rows for steps that never come."""
        self._steps = steps
        return self._grow(rows - self.rows) if rows > self.rows else None

    def pack(
        self,
        paths: Sequence[int],
        tokens: Sequence[Sequence[int]],
        wanted: Sequence[int] | None = None,
    ) -> ForwardBatch:
        """See KVCache.pack. Rows of siblings stay invisible to each other, also within the pass."""
        counts = np.array([len(new) for new in tokens])
        total = int(counts.sum())
        if self._lanes and self._is_crowded(total):
            self._untold.append(self._compact())
        rows, growth = self._take(total, len(paths))
        growths, self._untold = self._untold + ([growth] if growth else []), []
        positions, seen = self._place(paths, counts, rows)
        ids, keep = (
            [token for new in tokens for token in new],
            wanted_lines(counts.tolist(), wanted),
        )
        self._frame = frame = self._frame_for(total, len(keep))
        if frame is not None:
            frame.fill(ids, positions, rows, keep, seen)
            return ForwardBatch(self, frame.ids, frame.positions, frame.keep, tuple(growths), frame)
        self._look(seen, rows, tuple(paths) if counts.max() == 1 else ())
        device = self.shape.device
        self._rows = torch.from_numpy(rows).to(device)
        numbers = (torch.tensor(ids, device=device), torch.from_numpy(positions).to(device))
        return ForwardBatch(self, *numbers, torch.tensor(keep, device=device), tuple(growths))

    def _frame_for(self, tokens: int, wanted: int) -> StaticBuffers | None:
        return self._frames.of(tokens, wanted) if self.padded and self.shape.in_frames else None

    def _take(self, count: int, paths: int) -> tuple[NDArray[np.int64], Growth | None]:
        """Free rows for `count` tokens: at the end while lanes are in use, else the lowest."""
        used = np.flatnonzero(self._owners[: self._end])
        end, holes = self._end, np.empty(0, dtype=np.int64)
        if not self._lanes:
            end = int(used[-1]) + 1 if len(used) else 0
            holes = np.flatnonzero(self._owners[:end] == 0)[:count]
        missing = end + count - len(holes) - self.rows
        growth = self._grow_ahead(len(used), paths, count, missing) if missing > 0 else None
        self._end = end + count - len(holes)
        return np.concatenate([holes, np.arange(end, self._end)]), growth

    def _grow_ahead(self, used: int, paths: int, count: int, missing: int) -> Growth:
        """Grow by the missing rows, or by r steps' worth, but not for steps that never come."""
        r = self.r if isinstance(self.r, int) else self.r(used, paths, count)
        r = r if self._steps is None else min(r, self._steps)
        return replace(self._grow(max(r * paths, missing)), r=r)

    def _is_crowded(self, count: int) -> bool:
        """Whether moving up pays: a quarter of the rows is free, or the limit allows no more of
        them at the end.
        """
        holes = int(np.count_nonzero(self._owners[: self._end] == 0))
        at_the_limit = (self._end + count) * self.shape.row_bytes > self.byte_limit
        return holes > (self._end - holes) / 4 or (holes > 0 and at_the_limit)

    def _look(
        self, seen: NDArray[np.bool_], rows: NDArray[np.int64], writers: tuple[int, ...]
    ) -> None:
        """Decide how the pass attends: which part under a mask, which in lanes. writers: none if
        not a token each.
        """
        in_a_row = int(rows[-1] - rows[0]) == len(rows) - 1
        self._first_row = int(rows[0]) if in_a_row else None
        at_the_end = in_a_row and int(rows[-1]) == self._end - 1
        self._stretches = (
            extended(self._stretches, int(rows[0]), writers) if at_the_end and writers else []
        )
        device = self.shape.device
        parts = worthwhile(self._stretches, seen) if self.shape.in_lanes and not self.padded else []
        self._lanes = [SuffixIndex(part, device) for part in parts]
        trunk = parts[0].stretch.start if parts else self._visited
        self._seen = torch.from_numpy(seen[:, :trunk])
        self._masked = False

    def _place(
        self, paths: Sequence[int], counts: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Give each new token its row; -> positions (T,), and which rows each token sees (T, C)."""
        first = np.cumsum(counts) - counts
        slots = np.array([self._slots[path] for path in paths])
        lengths = np.array([self._length[path] for path in paths])
        positions = np.empty(len(rows), dtype=np.int64)
        seen = np.empty((len(rows), self._visited), dtype=np.bool_)
        for offset in range(
            int(counts.max())
        ):  # the offset-th new token of every path that has one
            has = counts > offset
            token = first[has] + offset
            self._visible[slots[has], rows[token]] = True
            seen[token] = self._visible[slots[has], : self._visited]
            positions[token] = lengths[has] + offset
        self._owners[rows] = 1
        self._position[rows] = positions
        for path, count in zip(paths, counts, strict=True):
            self._length[path] += int(count)
        return positions, seen

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """See KVCache.attend. Query heads of a group become query rows, so K and V are not expanded
        per query head.
        """
        keys, values = self._keys[layer], self._values[layer]
        _, heads, length, size = query.shape
        if self._frame is None and self._first_row is not None:
            keys[:, self._first_row : self._first_row + length] = key[0]
            values[:, self._first_row : self._first_row + length] = value[0]
        else:
            rows = self._rows if self._frame is None else self._frame.rows
            keys.index_copy_(1, rows, key[0])
            values.index_copy_(1, rows, value[0])
        folded = query.reshape(self.shape.kv_heads, -1, size)
        mask = (
            self._mask_for(query, heads // self.shape.kv_heads)
            if self._frame is None
            else self._frame.mask
        )
        if self._lanes:
            out = split_pass(folded, keys, values, mask, scale, self._lanes)
        else:
            out = masked_pass(
                folded, keys[:, : self._visited], values[:, : self._visited], mask, scale
            )
        return out.view(1, heads, length, size).transpose(1, 2)

    def _mask_for(self, query: Tensor, group: int) -> Tensor | None:
        """Once per pass, for all layers; none if every token sees every row, unless the shapes are
        to stay.
        """
        if not self._masked:
            self._masked, self._mask = True, None
            if self.padded or not bool(self._seen.all()):
                blocked = torch.zeros(self._seen.shape, dtype=query.dtype, device=query.device)
                unseen = ~self._seen.to(query.device)
                self._mask = blocked.masked_fill_(unseen, float("-inf")).repeat(group, 1)
        return self._mask

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
        self._stretches = []  # a lane is seen whole or not at all
        slot = self._slots[path]
        self._hide(slot, self._visible[slot] & (self._position >= length))
        self._length[path] = min(self._length[path], length)

    def _hide(self, slot: int, rows: NDArray[np.bool_]) -> None:
        self._visible[slot] &= ~rows
        self._owners -= rows

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

    def _compact(self) -> Growth:
        """Move the rows in use to the front, in order; the rest becomes spare."""
        kept = np.flatnonzero(self._owners > 0)
        count = len(kept)
        order = torch.from_numpy(kept).to(self.shape.device)
        for tensor in (*self._keys, *self._values):
            moved = tensor[:, order]
            self._ledger.made(moved, copied=moved.nbytes)
            tensor[:, :count] = moved
            self._ledger.dropped(moved)
        self._stretches = compacted(self._stretches, kept)
        for books in (self._visible.T, self._position, self._owners):
            books[:count] = books[kept]
            books[count:] = 0
        self._end = count
        return Growth(self.rows, count, count * self.shape.row_bytes, self._ledger.peak_bytes)

    def _grow(self, more: int) -> Growth:
        """Append `more` zeroed rows (0 x NaN = NaN would leak through the mask), one tensor at a
        time.
        """
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
        self._frames = StaticBufferPool(self.shape, rows)
        return Growth(rows, held, before, self._ledger.peak_bytes)

    def _empty(self, rows: int) -> Tensor:
        shape = (self.shape.kv_heads, rows, self.shape.head_dim)
        return torch.zeros(shape, dtype=self.shape.dtype, device=self.shape.device)
