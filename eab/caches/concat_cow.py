"""Copy-on-write by concatenation: a path is a chain of segments, and it shares those of its
ancestors.

This is the way of the first EAB implementation. A fork copies nothing: the children point to their
parent's segments, which nobody changes any more. What a path adds goes into a segment of its own, a
new and longer tensor at every step (torch.cat). To attend, the segments of the chain are
concatenated to one temporary tensor, in every layer and for every path; these copies, and the
moment in which they live, are counted too.
"""

from bisect import insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from eab.caches.base import ForwardBatch
from eab.caches.ledger import check_limit
from eab.caches.per_path import PathByPathCache
from eab.caches.shape import KVShape
from eab.events import KVUsage, PathRows


@dataclass(slots=True, eq=False)
class _Segment:
    """K and V of consecutive tokens, (G, C, D) per layer. paths: how many have it in their
    chain.
    """

    keys: list[Tensor]
    values: list[Tensor]
    rows: int = 0
    paths: int = 1

    @property
    def tensors(self) -> list[Tensor]:
        return [*self.keys, *self.values]


@dataclass(slots=True)
class _Chain:
    """What a path sees: the first rows of each shared segment, then its own segment, if it has
    added anything.
    """

    shared: tuple[tuple[_Segment, int], ...] = ()
    own: _Segment | None = None

    @property
    def parts(self) -> tuple[tuple[_Segment, int], ...]:
        return self.shared if self.own is None else (*self.shared, (self.own, self.own.rows))

    @property
    def length(self) -> int:
        return sum(rows for _, rows in self.parts)


class ConcatCowCache(PathByPathCache):
    """See KVCache."""

    def __init__(self, shape: KVShape, byte_limit: int) -> None:
        super().__init__(shape, byte_limit)
        self._chains = {0: _Chain()}
        self._nothing = torch.empty(
            (shape.kv_heads, 0, shape.head_dim), dtype=shape.dtype, device=shape.device
        )

    @property
    def bytes_held(self) -> int:
        """Bytes of all segments, each counted once, measured."""
        return sum(tensor.nbytes for segment in self._segments() for tensor in segment.tensors)

    def _segments(self) -> set[_Segment]:
        return {segment for chain in self._chains.values() for segment, _ in chain.parts}

    def pack(
        self,
        paths: Sequence[int],
        tokens: Sequence[Sequence[int]],
        wanted: Sequence[int] | None = None,
    ) -> ForwardBatch:
        """See KVCache.pack."""
        check_limit(self.bytes_held + sum(map(len, tokens)) * self.shape.row_bytes, self.byte_limit)
        starts = [self._chains[path].length for path in paths]
        for path, new in zip(paths, tokens, strict=True):
            chain = self._chains[path]
            chain.own = chain.own or _Segment(
                [self._nothing] * self.shape.layers, [self._nothing] * self.shape.layers
            )
            chain.own.rows += len(new)
        return self._pass(paths, tokens, starts, wanted)

    def _see(self, path: int, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        chain = self._chains[path]
        assert chain.own is not None
        for tensors, new in ((chain.own.keys, key), (chain.own.values, value)):
            old = tensors[layer]
            tensors[layer] = torch.cat([old, new], dim=1)
            self._ledger.replaced(old, tensors[layer], copied=old.nbytes)
        if not chain.shared:
            return chain.own.keys[layer], chain.own.values[layer]
        keys = torch.cat([segment.keys[layer][:, :rows] for segment, rows in chain.parts], dim=1)
        values = torch.cat(
            [segment.values[layer][:, :rows] for segment, rows in chain.parts], dim=1
        )
        for temporary in (keys, values):
            self._ledger.made(temporary, copied=temporary.nbytes)
        self._ledger.dropped(keys, values)  # once this path has attended
        return keys, values

    def fork(self, path: int, children: Sequence[int]) -> None:
        """See KVCache.fork: the parent's own segment becomes a shared one."""
        parts = self._chains.pop(path).parts
        for segment, _ in parts:
            segment.paths += len(children) - 1
        self._chains |= {child: _Chain(parts) for child in children}

    def release(self, path: int) -> None:
        """See KVCache.release."""
        for segment, _ in self._chains.pop(path).parts:
            self._leave(segment)

    def _leave(self, segment: _Segment) -> None:
        segment.paths -= 1
        if segment.paths == 0:
            self._ledger.dropped(*segment.tensors)

    def trim(self, path: int, length: int) -> None:
        """See KVCache.trim. Rows of a shared segment that no path sees any more stay until its last
        path leaves.
        """
        chain = self._chains[path]
        if chain.own is not None:
            own, kept = chain.own, length - (chain.length - chain.own.rows)
            if kept <= 0:
                self._leave(own)
                chain.own = None
            elif kept < own.rows:
                self._shorten(own, kept)
        shared, chain.shared = chain.shared, ()
        for segment, rows in shared:
            kept = min(rows, length - chain.length) if chain.own is None else rows
            if kept > 0:
                chain.shared += ((segment, kept),)
            else:
                self._leave(segment)

    def _shorten(self, own: _Segment, rows: int) -> None:
        own.rows = rows
        for tensors in (own.keys, own.values):
            for layer, old in enumerate(tensors):
                tensors[layer] = old[:, :rows].clone()
                self._ledger.replaced(old, tensors[layer], copied=tensors[layer].nbytes)

    def usage(self, paths: Sequence[int]) -> KVUsage:
        """See KVCache.usage. Spare: rows of shared segments that all their paths have trimmed
        away.
        """
        seen: defaultdict[_Segment, list[int]] = defaultdict(
            list
        )  # how far each of its paths sees, in rising order
        for chain in self._chains.values():
            for segment, rows in chain.parts:
                insort(seen[segment], rows)
        used = sum(depths[-1] for depths in seen.values())
        shared = sum(map(_shared, seen.values()))
        return KVUsage(
            bytes_held=self.bytes_held,
            rows_shared=shared,
            rows_private=used - shared,
            rows_spare=sum(segment.rows for segment in seen) - used,
            rows_independent=sum(self._chains[path].length for path in paths),
            paths=tuple(self._path_rows(path, seen) for path in paths),
            **self._ledger.totals(),
        )

    def _path_rows(self, path: int, seen: Mapping[_Segment, list[int]]) -> PathRows:
        chain = self._chains[path]
        own = sum(max(0, rows - _shared(seen[segment])) for segment, rows in chain.parts)
        return PathRows(path, chain.length - own, own)


def _shared(depths: Sequence[int]) -> int:
    """Rows of a segment that two paths or more see: its first ones, as far as the second longest
    view.
    """
    return depths[-2] if len(depths) > 1 else 0
