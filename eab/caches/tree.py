"""The tree cache: all paths of a run in one set of rows, shared copy-on-write without any copy.

A row is written once, in place, and is visible to every path that descends from its token. A fork
copies no K or V: the child sees the parent's rows. Rows that no path sees are free.

Free rows are reused lowest first. While shared-prefix attention pays off (see `cascade`), new rows
are taken at the end instead, so that private suffixes stay contiguous; once a quarter of the rows
is free, the others are compacted. Neither depends on the number of spare rows, so r never changes
which rows attention reads. The tensors grow by r decode steps' worth of rows at a time (BMC, arXiv
2511.12031).

Spare rows cost compute only if the attention kernel visits them. Sliced attention ends at the last
row that was ever given to a token. Padded attention visits every row that the tensors hold, the
spare ones under the mask, so its shapes change only when the tensors grow. On CUDA, padded batches
use static buffers (see `static_buffers`), and CUDA graphs can be captured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eab.caches.attention import SuffixIndex, masked_attention
from eab.caches.base import ForwardBatch, logits_indices
from eab.caches.cascade import SuffixBlock, choose_blocks, compact_blocks, extend_blocks
from eab.caches.growth import GrowthRule
from eab.caches.layers import LayerAttention
from eab.caches.ledger import Ledger, check_limit
from eab.caches.preemption_recovery import PreemptionRecovery
from eab.caches.reading import Reading, plan_readings, seen_by_kind
from eab.caches.shape import KVShape, to_device
from eab.caches.static_buffers import StaticBufferPool, StaticBuffers
from eab.events import Growth, KVUsage, PathRows


class _Layer:
    """Where a layer finds its K and V, and which of the masks is its own."""

    def __init__(self, kind: LayerAttention, slot: int, mask: int) -> None:
        self.kind, self.slot, self.mask = kind, slot, mask
        self.stores = kind.source < 0


class TreeCache:
    """Copy-on-write rows for one run."""

    def __init__(
        self,
        shape: KVShape,
        r: int | GrowthRule,
        byte_limit: int,
        padded: bool = False,
        *,
        static_buffers: bool = True,
    ) -> None:
        """Make an empty cache.

        Args:
            r: Growth step in decode steps, or a growth rule that chooses it at each growth.
            padded: Whether attention also visits the spare rows.
            static_buffers: Whether padded batches may use static buffers, where the shape does.
        """
        self.shape, self.r, self.byte_limit, self.padded = shape, r, byte_limit, padded
        self._static_buffers = static_buffers and padded and shape.uses_static_buffers
        self._steps_left: int | None = None  # None: unknown
        self._kinds = shape.mask_kinds
        self._layers = [
            _Layer(shape.layer(index), slot, self._kinds.index(shape.mask_kind(index)))
            for index, slot in enumerate(shape.slots)
        ]
        self._ledger = Ledger()
        # (G, C, D) each, for each layer that has its own
        self._keys, self._values = shape.empty_tensors()
        # (path indices, C): which rows a path sees
        self._visible = np.zeros((1, 0), dtype=np.bool_)
        self._positions = np.zeros(0, dtype=np.int64)  # (C,): of the row's token in its path
        self._ref_counts = np.zeros(0, dtype=np.int64)  # (C,): how many paths see the row
        self._end = 0  # the rows from here on have not been given to any token
        self._path_index = {0: 0}  # path -> its index in _visible
        self._free_indices: list[int] = []
        self._lengths = {0: 0}
        self._blocks: list[SuffixBlock] = []
        # Compactions for a batch that then exceeded the memory limit
        self._unreported: list[Growth] = []
        self._buffer_pool = StaticBufferPool(shape, 0)
        # The prepared batch: its static buffers if it has any; else its rows (T,), and what it
        # attends to
        self._buffers: StaticBuffers | None = None
        self._rows = torch.empty(0, dtype=torch.int64)
        self._first_row: int | None = None  # if the rows are contiguous
        self._attended = 0  # attention ends at this row
        self._batch_visible = np.zeros((0, 0), dtype=np.bool_)  # by each of its tokens, (T, rows)
        self._readings: list[Reading] = []  # one for each kind of mask
        self._suffixes: list[SuffixIndex] = []

    @property
    def rows(self) -> int:
        """Rows that the tensors hold."""
        return len(self._ref_counts)

    @property
    def end(self) -> int:
        """The first row that has not been given to any token; sliced attention ends here."""
        return self._end

    @property
    def bytes_held(self) -> int:
        """Bytes of all K and V tensors (measured)."""
        return sum(tensor.nbytes for tensor in (*self._keys, *self._values))

    def reserve(self, rows: int, steps: int | None) -> Growth | None:
        self._steps_left = steps
        return self.grow(rows - self.rows) if rows > self.rows else None

    def prepare(
        self,
        paths: Sequence[int],
        tokens: Sequence[Sequence[int]],
        logits_to_keep: Sequence[int] | None = None,
    ) -> ForwardBatch:
        """Siblings do not see each other's rows, even within a batch."""
        counts = np.array([len(new) for new in tokens])
        total = int(counts.sum())
        if self._suffixes and self._should_compact(total):
            self._unreported.append(self._compact())
        rows, growth = self._allocate(total, len(paths))
        growths, self._unreported = self._unreported + ([growth] if growth else []), []
        self._attended = self.rows if self.padded else self._end
        positions, visible = self._assign_rows(paths, counts, rows)
        ids = [token for new in tokens for token in new]
        indices = logits_indices(counts.tolist(), logits_to_keep)
        buffers = self._buffer_pool.get(total, len(indices)) if self._static_buffers else None
        self._buffers = buffers
        self._batch_visible = visible
        seen = seen_by_kind(self._kinds, visible, positions, self._positions[: self._attended])
        if buffers is not None:
            buffers.fill(ids, positions, rows, indices, seen)
            inputs = (buffers.ids, buffers.positions, buffers.logits_indices)
            return ForwardBatch(self, *inputs, tuple(growths), buffers)
        self._choose_suffixes(visible, rows, tuple(paths) if counts.max() == 1 else ())
        self._readings = plan_readings(
            self.shape, self._kinds, seen, visible, self._suffixes, self.padded
        )
        self._rows, batch_ids, at, kept = to_device(
            self.shape.device, rows, ids, positions, indices
        )
        return ForwardBatch(self, batch_ids, at, kept, tuple(growths))

    def most_rows_after(self, tokens: int, paths: int) -> int:
        """The most rows that the tensors hold after a pass of `tokens` tokens of `paths` paths."""
        if self._end + tokens <= self.rows:
            return self.rows
        r = self.r if isinstance(self.r, int) else self.r(self._end, paths, tokens)
        steps = r if self._steps_left is None else min(r, self._steps_left)
        return self.rows + max(steps * paths, tokens)

    def free(self, texts: Mapping[int, Sequence[int]]) -> PreemptionRecovery:
        """Free K and V of all rows until they are computed again."""
        for tensors in (self._keys, self._values):
            tensors[:] = [old[:, :0].clone() for old in tensors]
        self._buffers, self._buffer_pool = None, StaticBufferPool(self.shape, self.rows)
        by_index = {self._path_index[path]: text for path, text in texts.items()}
        return PreemptionRecovery(
            self.shape, self._keys, self._values, self._visible, self._positions, by_index
        )

    def _allocate(self, count: int, paths: int) -> tuple[NDArray[np.int64], Growth | None]:
        """Rows for `count` tokens: at the end while suffix blocks are in use, else the lowest."""
        used = np.flatnonzero(self._ref_counts[: self._end])
        end, holes = self._end, np.empty(0, dtype=np.int64)
        if not self._suffixes:
            end = int(used[-1]) + 1 if len(used) else 0
            holes = np.flatnonzero(self._ref_counts[:end] == 0)[:count]
        missing = end + count - len(holes) - self.rows
        growth = self._grow_ahead(len(used), paths, count, missing) if missing > 0 else None
        self._end = end + count - len(holes)
        return np.concatenate([holes, np.arange(end, self._end)]), growth

    def _grow_ahead(self, used: int, paths: int, count: int, missing: int) -> Growth:
        """Grow by r decode steps, but by no more rows than these paths can still fill, and at least
        by `missing` rows.
        """
        r = self.r if isinstance(self.r, int) else self.r(used, paths, count)
        if self._steps_left is None:
            return replace(self.grow(max(r * paths, missing)), r=r)
        r = min(r, self._steps_left)
        more = min(r * paths, self._steps_left * paths - (count - missing))
        return replace(self.grow(max(more, missing)), r=r)

    def _should_compact(self, count: int) -> bool:
        """Whether compaction pays off: a quarter of the rows is free, or the memory limit allows
        no more rows at the end.
        """
        holes = int(np.count_nonzero(self._ref_counts[: self._end] == 0))
        at_the_limit = (self._end + count) * self.shape.row_bytes > self.byte_limit
        return holes > (self._end - holes) / 4 or (holes > 0 and at_the_limit)

    def _choose_suffixes(
        self, visible: NDArray[np.bool_], rows: NDArray[np.int64], writers: tuple[int, ...]
    ) -> None:
        """Choose which rows the batch reads as private suffixes, and not under a mask.

        Args:
            visible: Which rows each token sees, (T, C).
            writers: The paths of the batch if each has one token; otherwise empty.
        """
        contiguous = int(rows[-1] - rows[0]) == len(rows) - 1
        self._first_row = int(rows[0]) if contiguous else None
        at_the_end = contiguous and int(rows[-1]) == self._end - 1
        self._blocks = (
            extend_blocks(self._blocks, int(rows[0]), writers) if at_the_end and writers else []
        )
        cascades = self.shape.uses_cascade_attention and not self.padded
        chosen = choose_blocks(self._blocks, visible) if cascades else []
        self._suffixes = [SuffixIndex(part, self.shape.device) for part in chosen]

    def _assign_rows(
        self, paths: Sequence[int], counts: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Give each new token its row: its position, (T,), and which rows it sees, (T, C)."""
        first = np.cumsum(counts) - counts
        indices = np.array([self._path_index[path] for path in paths])
        lengths = np.array([self._lengths[path] for path in paths])
        positions = np.empty(len(rows), dtype=np.int64)
        visible = np.empty((len(rows), self._attended), dtype=np.bool_)
        for offset in range(int(counts.max())):
            has = counts > offset  # the paths that have an offset-th new token
            token = first[has] + offset
            self._visible[indices[has], rows[token]] = True
            visible[token] = self._visible[indices[has], : self._attended]
            positions[token] = lengths[has] + offset
        self._ref_counts[rows] = 1
        self._positions[rows] = positions
        for path, count in zip(paths, counts, strict=True):
            self._lengths[path] += int(count)
        return positions, visible

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Query heads of a group become query rows, so K and V are not expanded per query head."""
        own = self._layers[layer]
        keys, values = self._keys[own.slot], self._values[own.slot]
        _, heads, length, size = query.shape
        if own.stores:
            self._store(keys, values, key, value)
        folded = query.reshape(len(keys), -1, size)
        if self._buffers is None:
            out = self._readings[own.mask].attend(folded, keys, values, scale, own.kind)
        else:
            mask = self._buffers.masks[own.mask]
            out = masked_attention(folded, keys, values, mask, scale, own.kind)
        # CUDA's kernels return a layout that has no such view.
        return out.reshape(1, heads, length, -1).transpose(1, 2)

    def _store(self, keys: Tensor, values: Tensor, key: Tensor, value: Tensor) -> None:
        if self._buffers is None and self._first_row is not None:
            rows = slice(self._first_row, self._first_row + key.shape[2])
            keys[:, rows], values[:, rows] = key[0], value[0]
            return
        places = self._rows if self._buffers is None else self._buffers.rows
        keys.index_copy_(1, places, key[0])
        values.index_copy_(1, places, value[0])

    def show(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        slot = self._layers[layer].slot
        keys, values = self._keys[slot], self._values[slot]
        self._store(keys, values, key, value)
        return keys[:, : self._attended], values[:, : self._attended]

    def shown(self) -> tuple[Tensor, Tensor]:
        seen = torch.from_numpy(self._batch_visible).to(self.shape.device)
        positions = torch.from_numpy(self._positions[: self._attended])
        return seen, positions.to(self.shape.device)

    def end_attention_at(self, row: int) -> None:
        """Let attention of the prepared batch, without static buffers, end before `row`.

        Attending again with another end shows what the rows between them cost.
        """
        self._attended = row
        for reading in dict.fromkeys(self._readings):
            reading.end_at(row)
            reading.make_mask(self.shape, self.padded)

    def fork(self, path: int, children: Sequence[int]) -> None:
        """Only bookkeeping, no K or V is touched."""
        index, length = self._path_index.pop(path), self._lengths.pop(path)
        self._ref_counts += self._visible[index] * (len(children) - 1)
        indices = [index, *(self._new_path_index() for _ in children[1:])]
        self._visible[indices] = self._visible[index]
        for child, child_index in zip(children, indices, strict=True):
            self._path_index[child], self._lengths[child] = child_index, length

    def release(self, path: int) -> None:
        index = self._path_index.pop(path)
        del self._lengths[path]
        self._hide(index, self._visible[index].copy())
        self._free_indices.append(index)

    def trim(self, path: int, length: int) -> None:
        """Only bookkeeping."""
        self._blocks = []  # a path sees a suffix of a block as a whole or not at all
        index = self._path_index[path]
        self._hide(index, self._visible[index] & (self._positions >= length))
        self._lengths[path] = min(self._lengths[path], length)

    def _hide(self, index: int, rows: NDArray[np.bool_]) -> None:
        self._visible[index] &= ~rows
        self._ref_counts -= rows

    def usage(self, paths: Sequence[int]) -> KVUsage:
        shared = self._ref_counts > 1
        visible = self._visible[[self._path_index[path] for path in paths]]
        common = (visible & shared).sum(axis=1)
        own = (visible & ~shared).sum(axis=1)
        rows_shared, rows_used = int(shared.sum()), int((self._ref_counts > 0).sum())
        return KVUsage(
            bytes_held=self.bytes_held,
            rows_shared=rows_shared,
            rows_private=rows_used - rows_shared,
            rows_spare=self.rows - rows_used,
            rows_independent=sum(self._lengths[path] for path in paths),
            paths=tuple(PathRows(*map(int, row)) for row in zip(paths, common, own, strict=True)),
            **self._ledger.totals(),
        )

    def _new_path_index(self) -> int:
        if not self._free_indices:
            old = len(self._visible)
            self._visible = np.concatenate([self._visible, np.zeros_like(self._visible)])
            self._free_indices = list(range(2 * old - 1, old - 1, -1))
        return self._free_indices.pop()

    def _compact(self) -> Growth:
        """Move the rows in use to the front, in order; the others become spare."""
        kept = np.flatnonzero(self._ref_counts > 0)
        count = len(kept)
        order = torch.from_numpy(kept).to(self.shape.device)
        for tensor in (*self._keys, *self._values):
            moved = tensor[:, order]
            self._ledger.allocated(moved, copied=moved.nbytes)
            tensor[:, :count] = moved
            self._ledger.freed(moved)
        self._blocks = compact_blocks(self._blocks, kept)
        for per_row in (self._visible.T, self._positions, self._ref_counts):
            per_row[:count] = per_row[kept]
            per_row[count:] = 0
        self._end = count
        return Growth(self.rows, count, count * self.shape.row_bytes, self._ledger.peak_bytes)

    def grow(self, more: int) -> Growth:
        """Append `more` rows, reallocating one tensor at a time.

        Every reallocation goes through this method, so a subclass can time it. The new rows are
        zeroed: 0 x NaN = NaN would leak through the mask.
        """
        before, rows, held = self.bytes_held, self.rows + more, self.rows
        check_limit(rows * self.shape.row_bytes, self.byte_limit, "a smaller r")
        for tensors in (self._keys, self._values):
            for slot, old in enumerate(tensors):
                tensors[slot] = new = old.new_empty((old.shape[0], rows, old.shape[2]))
                new[:, :held] = old
                new[:, held:].zero_()
                self._ledger.replaced(old, new, copied=old.nbytes)
        self._visible = np.pad(self._visible, ((0, 0), (0, more)))
        self._positions = np.pad(self._positions, (0, more))
        self._ref_counts = np.pad(self._ref_counts, (0, more))
        self._buffer_pool = StaticBufferPool(self.shape, rows)
        return Growth(rows, held, before, self._ledger.peak_bytes)
