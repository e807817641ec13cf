"""Caches that store and attend path by path: their common base, and the paged cache.

All live paths still share one forward pass per step; only the attention is computed separately for
each path, over its own K and V.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from msgspec import structs
from torch import Tensor
from torch.nn import functional

from eab.engine.caches.attention import attention_mask, by_group, masked_attention
from eab.engine.caches.base import ForwardBatch, KVCache, batch_of
from eab.engine.caches.ledger import BLOCK_SIZE, BlockLedger, Ledger, check_limit
from eab.engine.caches.rows import ListedRows, ranges
from eab.engine.caches.shape import ORDINARY, KVShape, LayerAttention, Reach, to_device
from eab.run.events import KVUsage


@dataclass(slots=True, eq=False)
class KVTensors:
    """K and V of consecutive tokens, (G, C, D) for each layer that has its own."""

    keys: list[Tensor]
    values: list[Tensor]
    rows: int = 0  # number of tokens

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors."""
        return [*self.keys, *self.values]


class PerPathCache(KVCache):
    """A cache that stores and attends path by path."""

    def __init__(self, shape: KVShape, byte_limit: int) -> None:
        self.shape, self.byte_limit = shape, byte_limit
        self._ledger = Ledger()
        self._slots = shape.slots
        # The same compiled attention as in the tree, in the same order: the texts are the same
        self._is_compiled = [shape.mask_kind(layer).is_compiled for layer in range(shape.layers)]
        self._listed: dict[tuple[int, int, Reach], ListedRows] = {}  # of the prepared batch
        # (path, number of its tokens) of the prepared batch
        self._batch: list[tuple[int, int]] = []

    def _append(self, own: KVTensors, slot: int, key: Tensor, value: Tensor) -> None:
        """Store new K and V of a layer, (G, T, D) each, as the last of `own.rows` rows."""
        for tensors, new in ((own.keys, key), (own.values, value)):
            # If a pass failed and is repeated, its rows may be here already.
            old, before = tensors[slot], own.rows - new.shape[1]
            kept = old[:, :before]
            tensors[slot] = torch.cat([kept, new], dim=1)
            self._ledger.replaced(old, tensors[slot], copied=kept.nbytes)

    def _truncate(self, own: KVTensors, rows: int) -> None:
        """Keep copies of the first rows, so that the memory of the others is freed."""
        own.rows = rows
        for tensors in (own.keys, own.values):
            for slot, old in enumerate(tensors):
                tensors[slot] = old[:, :rows].clone()
                self._ledger.replaced(old, tensors[slot], copied=tensors[slot].nbytes)

    def _joined(self, parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """K and V of these parts, in temporary tensors, which are counted."""
        keys, values = (torch.cat(each, dim=1) for each in zip(*parts, strict=True))
        for temporary in (keys, values):
            self._ledger.allocated(temporary, copied=temporary.nbytes)
        self._ledger.freed(keys, values)  # after the attention of the path
        return keys, values

    @property
    @abstractmethod
    def bytes_held(self) -> int:
        """Bytes of all K and V tensors that are kept until the next step (measured)."""

    @abstractmethod
    def _store(self, path: int, slot: int, key: Tensor, value: Tensor) -> None:
        """Store new K and V of a path, (G, T, D) each."""

    @abstractmethod
    def _seen(self, path: int, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """K and V of all rows that a path sees, (G, C, D) each; the given new ones are last."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        paths, counts = zip(*self._batch, strict=True)
        queries, new_keys = query.split(counts, 2), key[0].split(counts, 1)
        parts = zip(paths, queries, new_keys, value[0].split(counts, 1), strict=True)
        kind, slot = self.shape.layer(layer), self._slots[layer]
        outs = []
        for path, q, k, v in parts:
            if kind.source < 0:
                self._store(path, slot, k, v)
            keys, values = self._seen(path, slot, k, v)
            if self._is_compiled[layer]:
                rows = self._rows_of(keys.shape[1], q.shape[2], kind.reach)
                own = rows.attend(q[0], keys.contiguous(), values.contiguous(), scale, kind)
                outs.append(own[None])
            else:
                outs.append(causal_attention(q, keys, values, scale, kind))
        return torch.cat(outs, dim=1)

    def _rows_of(self, length: int, new: int, reach: Reach) -> ListedRows:
        """The rows that the last `new` of `length` tokens see."""
        key = (length, new, reach)
        if key not in self._listed:
            positions = np.arange(length - new, length)
            self._listed[key] = ListedRows(ranges(reach.first(positions), positions + 1))
        return self._listed[key]

    def _make_batch(
        self,
        paths: Sequence[int],
        texts: Sequence[Sequence[int]],
        starts: Sequence[int],
        logits_to_keep: Sequence[int] | None,
    ) -> ForwardBatch:
        """A batch of the texts of these paths, each from position `starts[i]` on."""
        self._listed = {}
        self._batch = [(path, len(text)) for path, text in zip(paths, texts, strict=True)]
        return batch_of(self, self.shape.device, texts, starts, logits_to_keep)


def causal_attention(
    query: Tensor, keys: Tensor, values: Tensor, scale: float, layer: LayerAttention = ORDINARY
) -> Tensor:
    """Causal attention of the last T of C tokens: query (1, H, T, D), keys and values (G, C, D) of
    all tokens, output (1, T, H, D).
    """
    _, heads, new, _ = query.shape
    groups, length, _ = keys.shape
    limited = not layer.reach.sees_all_up_to(length - 1)
    if new == length > 1 and not limited and layer.is_fused:
        gqa = heads > groups
        out = functional.scaled_dot_product_attention(
            query, keys[None], values[None], is_causal=True, scale=scale, enable_gqa=gqa
        )
        return out.transpose(1, 2)
    first = int(layer.reach.first(np.array([length - new]))[0]) if limited else 0
    mask = None  # a single new token sees everything from `first` on
    if new > 1:
        [shown] = to_device(query.device, layer.reach.causal(length, new)[:, first:])
        mask = attention_mask(shown, query.dtype)
    asking = by_group(query[0], groups)
    out = masked_attention(asking, keys[:, first:], values[:, first:], mask, scale, layer)
    return out.flatten(0, 1).transpose(0, 1)[None]


class PagedCache(PerPathCache):
    """K and V lie in blocks of a fixed number of rows, and each path has a block table.

    As in PagedAttention (Kwon et al., arXiv 2309.06180): paths with the same beginning list the
    same full blocks, and a fork copies only the last block, if it is not full. So memory is lost
    only at the ends of texts. The kernels of vLLM read the rows where they are; here, attention of
    a path joins its blocks to one temporary tensor, in every layer. These copies count as copied
    bytes, and the temporary tensors count for the peak.
    """

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
