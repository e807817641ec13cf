"""The tree cache: all paths of a run in one set of rows, shared copy-on-write without any copy.

A row is written once, in place, and is visible to every path that descends from its token. A fork
copies no K or V: the child sees the parent's rows. Rows that no path sees are free, and the lowest
of them are used first.

Tensors cannot grow. When no row is free, longer ones are allocated, with the rows of r decode steps
more, and the rows are copied (BMC, arXiv 2511.12031). So K and V are copied every r steps, and not
at every step, at the price of spare rows. When paths have ended, and more than half of the tensors
is free, the rows in use are copied to shorter ones in the same way. A copy puts the rows of each
path side by side, because these are read faster than scattered ones.

Spare rows cost compute only if the attention kernel visits them. Sliced attention ends at the last
row in use. Padded attention visits every row that the tensors hold, the spare ones under the mask,
so its shapes change only when the tensors grow. On CUDA, such batches use static buffers, and CUDA
graphs can be captured, which later runs use, too (see `eab.engine.caches.kv_pool`).
"""

import weakref
from collections.abc import Sequence

import numpy as np
import torch
from msgspec import structs
from numpy.typing import NDArray
from torch import Tensor

from eab.config import AllocationStep
from eab.engine.caches.base import ForwardBatch, KVCache, logits_indices
from eab.engine.caches.growth import growth_step, should_shrink
from eab.engine.caches.kv_pool import KVPool, RowSet, StaticBufferPool
from eab.engine.caches.ledger import Ledger, check_limit
from eab.engine.caches.rows import MaskedRows, Reading, RowLists, RowTable, plan_readings
from eab.engine.caches.shape import EVERYTHING, KVShape, PlacedLayer, Reach, to_device
from eab.run.events import Growth, KVUsage


class TreeCache(KVCache):
    """Copy-on-write rows for one run.

    Freed rows keep their numbers and their places in the tree. Each is computed again once, however
    many paths share it, and the counters stay as if it had never been freed.
    """

    def __init__(
        self,
        shape: KVShape,
        r: AllocationStep,
        byte_limit: int,
        padded: bool = False,
        pool: KVPool | None = None,
    ) -> None:
        """Make an empty cache.

        Args:
            r: Growth step in decode steps, or "auto" (`eab.engine.caches.growth.growth_step`).
            padded: Whether attention also visits the spare rows.
            pool: Where its tensors come from, and return to.
        """
        self.shape, self.r, self.byte_limit, self.padded = shape, r, byte_limit, padded
        self._kinds = shape.mask_kinds
        self._layers = [
            PlacedLayer(shape.layer(index), slot, self._kinds.index(shape.mask_kind(index)))
            for index, slot in enumerate(shape.slots)
        ]
        self._keys, self._values = shape.empty_tensors()  # (G, C, D) for each layer with its own
        self._static_buffers = padded and shape.uses_static_buffers
        self._pool = pool
        # Returns tensors to the pool
        self._give_back: weakref.finalize[..., TreeCache] | None = None
        self._buffer_pool = StaticBufferPool(shape, 0)
        self._table, self._ledger = RowTable(), Ledger()
        self._steps_left: int | None = None  # None: unknown
        self._reserved = 0  # rows to hold in any case
        self._freed = self._table.used  # rows to compute again, ancestors first
        self._unreported: list[Growth] = []  # kept if the batch exceeds the memory limit
        # The prepared batch:
        self._rows = torch.empty(0, dtype=torch.int64)  # of its tokens, (T,)
        self._lists: Sequence[RowLists] = ()  # what its tokens read of them, for each kind
        self._end = 0  # the first row after those that attention visits
        self._readings: Sequence[Reading] = ()  # one for each kind

    @property
    def bytes_held(self) -> int:
        """Bytes of all K and V tensors (measured)."""
        return sum(tensor.nbytes for tensor in (*self._keys, *self._values))

    @property
    def rows(self) -> int:
        """Rows that the tensors hold."""
        return len(self._table.positions)

    @property
    def end(self) -> int:
        """The first row after those in use; sliced attention ends here."""
        return int(self._table.used.max(initial=-1)) + 1

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
        self._compact(paths, total)
        rows = self._allocate(total, paths)
        growths, self._unreported = tuple(self._unreported), []
        ids = [token for new in tokens for token in new]
        readers, positions = self._table.assign(paths, counts, ids, rows)
        self._show(readers, positions)
        indices = logits_indices(counts.tolist(), logits_to_keep)
        buffers = self._buffer_pool.get(total, len(indices)) if self._static_buffers else None
        if buffers is not None:
            masks = [lists.mask(self.rows) for lists in self._lists]
            buffers.fill(ids, positions, rows, indices, masks)
            self._rows = buffers.rows
            self._readings = [MaskedRows(0, self.rows, mask) for mask in buffers.masks]
            inputs = (buffers.ids, buffers.positions, buffers.logits_indices)
            return ForwardBatch(self, *inputs, growths, buffers)
        self._rows, batch_ids, at, kept = self._place(rows, ids, positions, indices)
        return ForwardBatch(self, batch_ids, at, kept, growths)

    def _show(self, indices: NDArray[np.int64], positions: NDArray[np.int64]) -> None:
        """Let tokens of the paths with these indices, at these positions, read their rows, those of
        new tokens included; (T,) each.
        """

        def lists(reach: Reach) -> RowLists:
            return self._table.read_by(indices, reach.first(positions), positions)

        last, whole = int(positions.max()), lists(EVERYTHING)
        self._lists = [
            whole if reach.sees_all_up_to(last) else lists(reach) for reach, *_ in self._kinds
        ]
        self._end = self.rows if self.padded else self.end

    def _place(self, *inputs: Sequence[int] | NDArray[np.int64]) -> list[Tensor]:
        """The inputs of a batch, on the device."""
        self.end_attention_at(self._end)
        return to_device(self.shape.device, *inputs)

    def end_attention_at(self, row: int) -> None:
        """Let the prepared batch, without static buffers, read what it sees before `row`.

        Attending again with a different end shows what the rows in between cost.
        """
        self._readings = plan_readings(self.shape, self._kinds, self._lists, row, self.padded)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        own, (keys, values) = self._layers[layer], self._store(layer, key, value)
        return self._readings[own.mask].attend(query[0], keys, values, scale, own.kind)[None]

    def attend_own(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See `AttendOwn`."""
        keys, values = self._store(layer, key, value)
        reading = self._readings[self._layers[layer].mask]
        return reading.attend_with_lse(query[0], keys, values, scale)

    def _store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store K and V of the new tokens, if the layer has its own; returns those of all rows."""
        own = self._layers[layer]
        keys, values = self._keys[own.slot], self._values[own.slot]
        if own.stores:
            keys.index_copy_(1, self._rows, key[0])
            values.index_copy_(1, self._rows, value[0])
        return keys, values

    def _allocate(self, count: int, paths: Sequence[int]) -> NDArray[np.int64]:
        """The `count` lowest free rows; if there are not as many, the tensors grow."""
        used = self._table.count
        missing = used + count - self.rows
        if missing > 0:
            self._unreported.append(self._grow_ahead(used, len(paths), count, missing))
        return self._table.free(count)

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
        return structs.replace(self.grow(max(more, missing)), r=ahead // paths)

    def _compact(self, paths: Sequence[int], count: int) -> None:
        """Before a batch of `count` tokens, give memory back if paths have ended."""
        used = self._table.count
        after, ahead = used + count, self._ahead(used, len(paths))
        least, needed = (max(self._reserved, rows) for rows in (after, after + ahead))
        if should_shrink(self.rows, least, needed):
            self._unreported.append(self._reallocate(self._table.by_path[:used], needed))

    def grow(self, more: int) -> Growth:
        """Add `more` rows. Every growth goes through this method, so a subclass can time it."""
        rows = self.rows + more
        in_all = (self.rows_in_place + rows) * self.shape.row_bytes
        check_limit(in_all, self.byte_limit, "a smaller r")
        return self._reallocate(self._table.by_path, rows)

    def _rounded(self, rows: int) -> int:
        """The rows to allocate for these: whole blocks of a pool, if the byte limit allows."""
        blocks = rows if self._pool is None else self._pool.in_blocks(rows)
        fits = (self.rows_in_place + blocks) * self.shape.row_bytes <= self.byte_limit
        return blocks if fits else rows

    def _reallocate(self, kept: NDArray[np.int64], rows: int) -> Growth:
        """Copy the `kept` rows to new tensors of at least `rows` rows, one tensor at a time.

        The other rows are zeroed: 0 x NaN = NaN would leak through a mask.
        """
        rows, count = self._rounded(rows), len(kept)
        [source] = to_device(self.shape.device, kept)
        taken = None if self._pool is None else self._pool.take(rows)
        for place, tensors in enumerate((self._keys, self._values)):
            for slot, old in enumerate(tensors):
                if taken is None:
                    new = old.new_empty((old.shape[0], rows, old.shape[2]))
                else:
                    new = (taken.keys, taken.values)[place][slot]
                for before, after in zip(old, new, strict=True):
                    torch.index_select(before, 0, source, out=after[:count])
                new[:, count:].zero_()
                tensors[slot] = new
                self._ledger.replaced(old, new, copied=new[:, :count].nbytes)
        self._table.keep(kept, rows)
        self._change_buffers(taken)
        return Growth(rows, count, count * self.shape.row_bytes, self._ledger.peak_bytes)

    def _change_buffers(self, taken: RowSet | None) -> None:
        """Use the static buffers of new tensors; those of the pool return to it in the end."""
        if self._give_back is not None:
            self._give_back()
            self._give_back = None
        if self._pool is not None and taken is not None:
            self._give_back = weakref.finalize(self, self._pool.give_back, taken)
            self._give_back.atexit = False
        self._buffer_pool = taken.buffers if taken else StaticBufferPool(self.shape, self.rows)

    @property
    def bytes_freeable(self) -> int:
        return self.bytes_held

    def most_bytes_after(self, tokens: int, paths: int, rows: int) -> int:
        used, after = self._table.count, self.rows
        if self.freed_tokens:
            return after * self.shape.row_bytes
        if used + tokens > after:
            after = self._rounded(after + max(self._ahead(used, paths), tokens))
        return max(rows, after) * self.shape.row_bytes

    def free(self) -> None:
        for tensors in (self._keys, self._values):
            tensors[:] = [old[:, :0].clone() for old in tensors]
        self._change_buffers(None)
        if self._pool is not None:
            self._pool.clear()
        self._freed = self._table.ancestors_first

    @property
    def freed_tokens(self) -> int:
        return len(self._freed)

    def prepare_freed(self, limit: int) -> ForwardBatch:
        now, self._freed = self._freed[:limit], self._freed[limit:]
        if not self._keys[0].shape[1]:
            for tensors in (self._keys, self._values):  # zeroed, as in `_reallocate`
                tensors[:] = [old.new_zeros((len(old), self.rows, old.shape[2])) for old in tensors]
        table, last = self._table, [len(now) - 1]
        positions = table.positions[now]
        self._show(table.readers(now), positions)
        self._rows, ids, at, kept = self._place(now, table.tokens[now], positions, last)
        return ForwardBatch(self, ids, at, kept, growths=())

    def fork(self, path: int, children: Sequence[int]) -> None:
        """Only bookkeeping; no K or V is touched."""
        self._table.fork(path, children)

    def release(self, path: int) -> None:
        self._table.release(path)

    def trim(self, path: int, length: int) -> None:
        """Only bookkeeping."""
        self._table.trim(path, length)

    def usage(self, paths: Sequence[int]) -> KVUsage:
        rows_used = self._table.count
        rows_shared = int(np.count_nonzero(self._table.ref_counts > 1))
        shares = self._table.shares(paths)
        own = sum(rows.shared + rows.private for rows in shares)
        return KVUsage(
            bytes_held=self.bytes_held,
            rows_shared=rows_shared,
            rows_private=rows_used - rows_shared,
            rows_spare=self.rows - rows_used,
            rows_independent=own + self._table.before * len(paths),
            paths=shares,
            **self._ledger.totals(),
        )
