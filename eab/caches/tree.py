"""The tree cache: all paths of a run in one set of rows, shared copy-on-write without any copy.

A row is written once, in place, and is visible to every path that descends from its token. A fork
copies no K or V: the child sees the parent's rows. Rows that no path sees are free.

Free rows are reused lowest first. While shared-prefix attention pays off (see `cascade`), new rows
are taken at the end instead, so that private suffixes stay contiguous. Used rows are moved
together, in an order that attention reads fast, when that pays off, or when too many rows between
them are free (see `row_order`). Compiled attention needs none of this, but a run should take the
same rows on every machine. Nor does it depend on the number of spare rows, so r never changes which
rows attention reads. The tensors grow by the rows of r decode steps (BMC, arXiv 2511.12031), and
shrink when paths have ended.

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

from eab.caches.attention import by_group, masked_attention
from eab.caches.base import ForwardBatch, logits_indices
from eab.caches.cascade import SuffixBlock, SuffixQueries, choose_blocks, next_slots, with_step
from eab.caches.growth import LEAST_GIVEN_BACK, growth_step, should_shrink
from eab.caches.layers import PlacedLayer
from eab.caches.ledger import Ledger, check_limit
from eab.caches.moving import in_order, reorder, resize
from eab.caches.preemption_recovery import PreemptionRecovery
from eab.caches.row_order import LEAST_SAVING, RowOrder, Upkeep, best_order
from eab.caches.rows_read import MaskedRows, Reading, plan_readings, seen_by_kind
from eab.caches.shape import KVShape, to_device
from eab.caches.static_buffers import StaticBufferPool, StaticBuffers
from eab.config import AllocationStep
from eab.events import Growth, KVUsage, PathRows


class TreeCache:
    """Copy-on-write rows for one run."""

    def __init__(
        self,
        shape: KVShape,
        r: AllocationStep,
        byte_limit: int,
        padded: bool = False,
        *,
        static_buffers: bool = True,
    ) -> None:
        """Make an empty cache.

        Args:
            r: Growth step in decode steps, or "auto" (`eab.caches.growth.growth_step`).
            padded: Whether attention also visits the spare rows.
            static_buffers: Whether padded batches may use static buffers, if the shape allows.
        """
        self.shape, self.r, self.byte_limit, self.padded = shape, r, byte_limit, padded
        self._static_buffers = static_buffers and padded and shape.uses_static_buffers
        self._cascades = shape.uses_cascade_attention and not padded
        self._steps_left: int | None = None  # None: unknown
        self._kinds = shape.mask_kinds
        self._layers = [
            PlacedLayer(shape.layer(index), slot, self._kinds.index(shape.mask_kind(index)))
            for index, slot in enumerate(shape.slots)
        ]
        self._ledger = Ledger()
        self._keys, self._values = shape.empty_tensors()  # (G, C, D) for each layer with its own
        self._visible = np.zeros((1, 0), dtype=np.bool_)  # (path indices, C): what a path sees
        self._positions = np.zeros(0, dtype=np.int64)  # (C,): of the row's token in its path
        self._ref_counts = np.zeros(0, dtype=np.int64)  # (C,): how many paths see the row
        self._end = 0  # the rows from here on have not been given to any token
        self._path_index = {0: 0}  # path -> its index in _visible
        self._free_indices: list[int] = []
        self._lengths = {0: 0}
        self._blocks: list[SuffixBlock] = []
        self._upkeep = Upkeep()
        self._cost = 0  # of attention in the last batch
        self._reserved = 0  # rows to hold in any case
        self.rows_in_place = 0  # read elsewhere, before its own; they count towards the limit
        self._unreported: list[Growth] = []  # kept if the batch exceeds the memory limit
        self._buffer_pool = StaticBufferPool(shape, 0)
        # The prepared batch: its static buffers if it has any; else its rows (T,)
        self._buffers: StaticBuffers | None = None
        self._rows = torch.empty(0, dtype=torch.int64)
        self._first_row: int | None = None  # if the rows are contiguous
        self._attended = 0  # attention ends at this row
        self._batch_visible = np.zeros((0, 0), dtype=np.bool_)  # to each of its tokens, (T, rows)
        self._readings: list[Reading] = []  # one for each kind of mask
        self._suffixes: Sequence[SuffixQueries] = ()

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
        self._steps_left, self._reserved = steps, rows
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
        self._tidy(paths, total)
        rows, growth = self._allocate(total, paths, single=counts.max() == 1)
        growths, self._unreported = self._unreported + ([growth] if growth else []), []
        self._attended = self.rows if self.padded else self._end
        positions, visible = self._assign_rows(paths, counts, rows)
        ids = [token for new in tokens for token in new]
        indices = logits_indices(counts.tolist(), logits_to_keep)
        buffers = self._buffer_pool.get(total, len(indices)) if self._static_buffers else None
        self._buffers = buffers
        self._batch_visible = visible
        row_positions = self._positions[: self._attended]
        seen = seen_by_kind(self._kinds, visible, positions, row_positions)
        if buffers is not None:
            buffers.fill(ids, positions, rows, indices, seen)
            inputs = (buffers.ids, buffers.positions, buffers.logits_indices)
            return ForwardBatch(self, *inputs, tuple(growths), buffers)
        self._choose_suffixes(visible, rows)
        self._readings = plan_readings(
            self.shape, self._kinds, seen, visible, row_positions, self._suffixes, self.padded
        )
        self._rows, batch_ids, at, kept = to_device(
            self.shape.device, rows, ids, positions, indices
        )
        return ForwardBatch(self, batch_ids, at, kept, tuple(growths))

    def most_rows_after(self, tokens: int, paths: int) -> int:
        """The most rows that the tensors hold after a pass of `tokens` tokens of `paths` paths."""
        if self._suffixes and self._blocks:
            tokens = max(tokens, self._blocks[-1].suffixes)  # ended paths take rows, too
        if self._end + tokens <= self.rows:
            return self.rows
        return self.rows + max(self._ahead(self._end, paths), tokens)

    def free(self, texts: Mapping[int, Sequence[int]]) -> PreemptionRecovery:
        """Free K and V of all rows; the returned recovery recomputes them."""
        for tensors in (self._keys, self._values):
            tensors[:] = [old[:, :0].clone() for old in tensors]
        self._buffers, self._buffer_pool = None, StaticBufferPool(self.shape, self.rows)
        by_index = {self._path_index[path]: text for path, text in texts.items()}
        rows = (self._keys, self._values, self._visible, self._positions)
        return PreemptionRecovery(self.shape, *rows, by_index)

    def _allocate(
        self, count: int, paths: Sequence[int], single: bool
    ) -> tuple[NDArray[np.int64], Growth | None]:
        """Allocate `count` rows: at the end while suffix blocks are in use, else lowest first."""
        used, end = np.flatnonzero(self._ref_counts[: self._end]), self._end
        holes = np.empty(0, dtype=np.int64)
        if not self._suffixes:
            end = int(used[-1]) + 1 if len(used) else 0
            holes = np.flatnonzero(self._ref_counts[:end] == 0)[:count]
        writers = tuple(paths) if single and not len(holes) else ()
        slots = next_slots(self._blocks, end, writers, gaps=bool(self._suffixes))
        more = self._blocks[-1].suffixes if slots else count - len(holes)
        missing = end + more - self.rows
        growth = self._grow_ahead(len(used), len(paths), more, missing) if missing > 0 else None
        self._end = end + more
        self._blocks = [] if len(holes) else with_step(self._blocks, end, writers, bool(slots))
        new = end + np.array(slots or range(more), dtype=np.int64)
        return np.concatenate([holes, new]), growth

    def _ahead(self, used: int, paths: int) -> int:
        """How many rows r decode steps take if `used` rows are in use."""
        r = growth_step(self.r, used, paths)
        return paths * (r if self._steps_left is None else min(r, self._steps_left))

    def _grow_ahead(self, used: int, paths: int, count: int, missing: int) -> Growth:
        """Grow by r decode steps, or fewer if these paths or the byte limit allow no more."""
        ahead = self._ahead(used, paths)
        more = min(ahead, self.byte_limit // self.shape.row_bytes - self.rows_in_place - self.rows)
        if self._steps_left is not None:
            more = min(more, self._steps_left * paths - (count - missing))
        return replace(self.grow(max(more, missing)), r=ahead // paths)

    def _tidy(self, paths: Sequence[int], count: int) -> None:
        """Before a batch of `count` tokens, move rows together or give memory back, if needed."""
        used = int(np.count_nonzero(self._ref_counts[: self._end]))
        order = self._better_order(paths, used, self._end - used, count)
        end = self._end if order is None else used
        ahead = self._ahead(used, len(paths))
        least, needed = (max(self._reserved, end + count + more) for more in (0, ahead))
        saves = order is not None and self.rows - needed > needed // 8 + LEAST_GIVEN_BACK
        shrinks = saves or should_shrink(self.rows, least, needed)
        if order is None and shrinks:
            order = RowOrder(np.arange(end), self._blocks, self._cost)
        if order is not None:
            self._unreported.append(self._move(order, needed if shrinks else self.rows))

    def _better_order(
        self, paths: Sequence[int], used: int, holes: int, count: int
    ) -> RowOrder | None:
        """The order that rows should move to, if any. It does not depend on the growth step."""
        needed = (self.rows_in_place + self._end + count) * self.shape.row_bytes
        full = holes > 0 and needed > self.byte_limit
        crowded = bool(self._suffixes) and (holes > used / 4 or full)
        crowded = crowded or holes > used / 2 + LEAST_GIVEN_BACK
        due = self._upkeep.is_due(used) and not self.padded
        if not (crowded or due):
            return None
        order = self._best_order(paths)
        better = order.cost * LEAST_SAVING <= self._cost * (LEAST_SAVING - 1)
        self._upkeep.done(better)
        return order if crowded or better else None

    def _best_order(self, paths: Sequence[int]) -> RowOrder:
        known = [*dict.fromkeys((*paths, *self._path_index))]
        visible = self._visible[[self._path_index[path] for path in known], : self._end]
        return best_order(visible, self._positions[: self._end], known, self._cascades)

    def _choose_suffixes(self, visible: NDArray[np.bool_], rows: NDArray[np.int64]) -> None:
        """Choose the rows to read as suffixes instead of under a mask; `visible` is (T, C)."""
        contiguous = int(rows[-1] - rows[0]) == len(rows) - 1
        self._first_row = int(rows[0]) if contiguous else None
        choice = choose_blocks(self._blocks if self._cascades else (), visible)
        self._suffixes, self._cost = choice.chain, choice.cost
        in_use = self._ref_counts[: self._end]
        used, paths = int(np.count_nonzero(in_use)), len(self._path_index)
        common = int(np.count_nonzero(in_use == paths))
        self._upkeep.note(choice.cost, used, common, len(visible))

    def _assign_rows(
        self, paths: Sequence[int], counts: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Assign new tokens to rows; returns their positions, (T,), and what they see, (T, C)."""
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
        own, (keys, values) = self._layers[layer], self._store(layer, key, value)
        if self._buffers is None:
            return self._readings[own.mask].attend(query[0], keys, values, scale, own.kind)[None]
        mask = self._buffers.masks[own.mask]
        out = masked_attention(by_group(query[0], keys), keys, values, mask, scale, own.kind)
        # Not view(): it fails for the layout that CUDA's kernels return.
        return out.reshape(*query.shape[:3], -1).transpose(1, 2)

    def _store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store K and V of the new tokens, if the layer has its own; returns those of all rows."""
        own = self._layers[layer]
        keys, values = self._keys[own.slot], self._values[own.slot]
        if own.stores and self._buffers is None and self._first_row is not None:
            rows = slice(self._first_row, self._first_row + key.shape[2])
            keys[:, rows], values[:, rows] = key[0], value[0]
        elif own.stores:
            places = self._rows if self._buffers is None else self._buffers.rows
            keys.index_copy_(1, places, key[0])
            values.index_copy_(1, places, value[0])
        return keys, values

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self._store(layer, key, value)
        return keys[:, : self._attended], values[:, : self._attended]

    def visible_rows(self) -> tuple[Tensor, Tensor]:
        seen = torch.from_numpy(self._batch_visible).to(self.shape.device)
        positions = torch.from_numpy(self._positions[: self._attended])
        return seen, positions.to(self.shape.device)

    def end_attention_at(self, row: int) -> None:
        """End the masked attention of the prepared batch, without static buffers, before `row`.

        Attending again with a different end shows what the rows in between cost.
        """
        self._attended = row
        for reading in dict.fromkeys(self._readings):
            if isinstance(reading, MaskedRows):
                reading.end_at(row)
                reading.make_mask(self.shape, self.padded)

    def fork(self, path: int, children: Sequence[int]) -> None:
        """Only bookkeeping; no K or V is touched."""
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
        index = self._path_index[path]
        hidden = self._visible[index] & (self._positions >= length)
        # A path must see the whole suffix of a block, or none of it.
        self._blocks = [
            block for block in self._blocks if not hidden[block.start : block.end].any()
        ]
        self._hide(index, hidden)
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

    def _move(self, order: RowOrder, rows: int) -> Growth:
        """Move the used rows into this order; with spare rows after them, there are `rows` rows."""
        count, held = len(order.rows), self.rows
        stays = order.rows == np.arange(count)
        first = count if stays.all() else int(stays.argmin())
        moved = torch.from_numpy(order.rows[first:]).to(self.shape.device)
        if rows == held:
            reorder((*self._keys, *self._values), moved, first, self._ledger)
        else:
            for tensors in (self._keys, self._values):
                resize(tensors, moved, first, rows, self._ledger)
            self._buffer_pool = StaticBufferPool(self.shape, rows)
        self._visible, self._positions, self._ref_counts = (
            in_order(per_row, order.rows, rows)
            for per_row in (self._visible, self._positions, self._ref_counts)
        )
        self._blocks, self._end = order.blocks, count
        copied = count - first if rows == held else count
        return Growth(rows, copied, copied * self.shape.row_bytes, self._ledger.peak_bytes)

    def grow(self, more: int) -> Growth:
        """Append `more` rows, reallocating one tensor at a time.

        Every reallocation goes through this method, so a subclass can time it. The new rows are
        zeroed: 0 x NaN = NaN would leak through the mask.
        """
        before, rows, held = self.bytes_held, self.rows + more, self.rows
        in_all = (self.rows_in_place + rows) * self.shape.row_bytes
        check_limit(in_all, self.byte_limit, "a smaller r")
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
