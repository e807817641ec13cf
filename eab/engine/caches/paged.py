"""Paged KV: K and V lie in blocks of a fixed number of rows, and each path has a block table.

As in PagedAttention (Kwon et al., arXiv 2309.06180): paths with the same beginning list the same
full blocks, and a fork copies only the last block, if it is not full. So memory is lost only at the
ends of texts. The kernels of vLLM read the rows where they are; here, attention of a path joins its
blocks to one temporary tensor, in every layer. These copies count as copied bytes, and the
temporary tensors count for the peak.
"""

from collections.abc import Iterator, Sequence

from msgspec import structs
from torch import Tensor

from eab.engine.caches.base import ForwardBatch
from eab.engine.caches.blocks import BLOCK_SIZE, BlockLedger
from eab.engine.caches.ledger import check_limit
from eab.engine.caches.per_path import KVTensors, PerPathCache
from eab.engine.caches.shape import KVShape
from eab.run.events import KVUsage


class PagedCache(PerPathCache):
    """Blocks of K and V, and which of them each path lists."""

    def __init__(self, shape: KVShape, byte_limit: int, block_size: int = BLOCK_SIZE) -> None:
        super().__init__(shape, byte_limit)
        self._blocks: dict[int, KVTensors] = {}
        self._tables = BlockLedger(block_size, shape.row_bytes, allocated=self._allocate)

    @property
    def bytes_held(self) -> int:
        """Bytes of all blocks, each counted once (measured)."""
        return self._ledger.live_bytes

    def prepare(
        self,
        paths: Sequence[int],
        tokens: Sequence[Sequence[int]],
        logits_to_keep: Sequence[int] | None = None,
    ) -> ForwardBatch:
        tables, starts = self._tables, [self._tables.length(path) for path in paths]
        pairs = [*zip(paths, map(len, tokens), strict=True)]
        self._check_room(sum(tables.blocks_missing(path, count) for path, count in pairs))
        for path, count in pairs:
            tables.append(path, count)
        return self._make_batch(paths, tokens, starts, logits_to_keep)

    def _check_room(self, blocks: int) -> None:
        more = blocks * self._tables.block_size * self.shape.row_bytes
        check_limit(self.bytes_held + more, self.byte_limit)

    def _allocate(self, block: int, copy_of: int, rows: int) -> None:
        size = self._tables.block_size
        keys, values = (
            [one.new_empty((one.shape[0], size, one.shape[2])) for one in tensors]
            for tensors in self.shape.empty_tensors()
        )
        new = self._blocks[block] = KVTensors(keys, values)
        old = self._blocks[copy_of] if rows else new
        for tensor, source in zip(new.tensors, old.tensors, strict=True):
            tensor[:, :rows] = source[:, :rows]
            self._ledger.allocated(tensor, copied=source[:, :rows].nbytes)

    def _free_unlisted(self) -> None:
        for block in self._blocks.keys() - self._tables.blocks:
            self._ledger.freed(*self._blocks.pop(block).tensors)

    def _store(self, path: int, slot: int, key: Tensor, value: Tensor) -> None:
        end = self._tables.length(path)
        at = start = end - key.shape[1]
        for block, first in self._blocks_of(path, start):
            stop = min(end, first + self._tables.block_size)
            rows, new = slice(at - first, stop - first), slice(at - start, stop - start)
            block.keys[slot][:, rows] = key[:, new]
            block.values[slot][:, rows] = value[:, new]
            at = stop

    def _blocks_of(self, path: int, start: int = 0) -> Iterator[tuple[KVTensors, int]]:
        """The blocks of a path from the one with this position on, each with its first position."""
        size, table = self._tables.block_size, self._tables.block_table(path)
        for index in range(start // size, len(table)):
            yield self._blocks[table[index]], index * size

    def _seen(self, path: int, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        length = self._tables.length(path)
        parts = [
            (block.keys[slot][:, : length - first], block.values[slot][:, : length - first])
            for block, first in self._blocks_of(path)
        ]
        return self._joined(parts)

    def fork(self, path: int, children: Sequence[int]) -> None:
        rest = self._tables.length(path) % self._tables.block_size
        self._check_room((len(children) - 1) * bool(rest))
        self._tables.fork(path, children)

    def release(self, path: int) -> None:
        self._tables.release(path)
        self._free_unlisted()

    def trim(self, path: int, length: int) -> None:
        self._check_room(int(self._tables.copies(path, length)))
        self._tables.trim(path, length)
        self._free_unlisted()

    def usage(self, paths: Sequence[int]) -> KVUsage:
        """Spare rows are those at the ends of texts that no token fills yet."""
        counted = self._tables.usage(paths)
        return structs.replace(counted, bytes_held=self.bytes_held, **self._ledger.totals())
