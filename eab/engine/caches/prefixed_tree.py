"""A tree cache that starts with rows of the prefix cache, and adds its own rows to that cache.

Long segments are read in place, by all runs together (see `shared_prefix`). The rows of short ones
are copied, because one more attention call would cost more. All are copied where only the plain
kernel can be used: for padded attention, on CUDA, and if a layer reads only some of the rows before
a token, or scores them differently.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from msgspec import structs
from numpy.typing import NDArray
from torch import Tensor

from eab.config import PREFIX_CACHE_MIB, AllocationStep
from eab.engine.caches.base import ForwardBatch
from eab.engine.caches.kv_pool import KVPool
from eab.engine.caches.prefix_cache import PrefixCache, PrefixSegment, Rows
from eab.engine.caches.shape import EVERYTHING, KVShape
from eab.engine.caches.shared_prefix import ReadPrefix
from eab.engine.caches.tree import TreeCache
from eab.run.events import KVUsage, PathRows

LEAST_IN_PLACE: Final = 32  # rows of a segment


@dataclass(frozen=True, slots=True)
class Prefixes:
    """One run's access to the prefix cache of its model, to find prefixes and add texts."""

    cache: PrefixCache
    scope: str = ""

    def hold(self, text: Sequence[int]) -> PrefixSegment | None:
        """See `PrefixCache.hold`."""
        return self.cache.hold(self.scope, text)

    def known(self, text: Sequence[int]) -> int:
        """How many leading tokens of a text the run would find."""
        return self.cache.known(self.scope, text)

    def fits(self, tokens: int) -> bool:
        """Whether there is room for the rows of this many tokens."""
        return self.cache.fits(tokens * self.cache.shape.row_bytes)


def can_reuse(shape: KVShape) -> bool:
    """Whether the rows of a prefix stay valid, whatever text follows it."""
    return shape.blocks is None and shape.own is None and not shape.rope_switch


def prefix_cache(shape: KVShape, mib: float = PREFIX_CACHE_MIB) -> PrefixCache | None:
    """An empty prefix cache for a model; None if `mib` is 0, or the model cannot reuse rows."""
    return PrefixCache(shape, int(mib * 2**20)) if mib and can_reuse(shape) else None


class PrefixedTreeCache(TreeCache):
    """The rows of one run, after those of a prefix that other runs may read, too."""

    def __init__(
        self,
        shape: KVShape,
        r: AllocationStep,
        byte_limit: int,
        padded: bool,
        prefixes: Prefixes,
        pool: KVPool | None = None,
    ) -> None:
        super().__init__(shape, r, byte_limit, padded, pool)
        self._prefixes = prefixes
        self._held: PrefixSegment | None = None  # the last segment that is read in place
        self._to_copy: list[Rows] = []
        self._copied_tokens: Sequence[int] = ()
        self._tokens_reused = 0

    def begin_with(self, text: Sequence[int]) -> int:
        known = self._prefixes.hold(text)
        if known is None:
            return 0
        chain = self._prefixes.cache.chain_of(known)
        lengths = [_count(rows) for _, rows in chain]
        in_place = self._leading_in_place(lengths)
        self._held = chain[in_place - 1][0] if in_place else None
        self._prefixes.cache.let_go(known, until=self._held)
        self._table.before = self.rows_in_place = sum(lengths[:in_place])
        self._to_copy = [rows for _, rows in chain[in_place:]]
        self._tokens_reused = sum(lengths)
        self._copied_tokens = text[self.rows_in_place : self._tokens_reused]
        return self._tokens_reused

    def _leading_in_place(self, lengths: Sequence[int]) -> int:
        """How many leading segments, with these numbers of rows, are read in place."""
        plain = all(own.kind.reach == EVERYTHING and own.kind.returns_lse for own in self._layers)
        on_cpu = self.shape.device.type == "cpu"
        if not (plain and on_cpu) or self.padded:
            return 0
        short = [at for at, length in enumerate(lengths) if length < LEAST_IN_PLACE]
        return short[0] if short else len(lengths)

    def keep(self, path: int, text: Sequence[int]) -> None:
        """Add them to the prefix cache."""

        def rows(start: int, end: int) -> Rows:
            first = self.rows_in_place
            chosen = self._table.of_path(path)[start - first : end - first]
            return _rows_at(self._keys, chosen), _rows_at(self._values, chosen)

        self._prefixes.cache.add(self._prefixes.scope, text, rows)

    def let_go(self) -> None:
        if self._held is not None:
            self._prefixes.cache.let_go(self._held)
            self._held = None

    def prepare(
        self,
        paths: Sequence[int],
        tokens: Sequence[Sequence[int]],
        logits_to_keep: Sequence[int] | None = None,
    ) -> ForwardBatch:
        if self._to_copy:
            self._copy()
        return self._after_prefix(super().prepare(paths, tokens, logits_to_keep))

    def prepare_freed(self, limit: int) -> ForwardBatch:
        return self._after_prefix(super().prepare_freed(limit))

    def _copy(self) -> None:
        segments, self._to_copy = self._to_copy, []
        count = sum(map(_count, segments))
        rows = self._allocate(count, [0])
        self._assign([0], np.array([count]), self._copied_tokens, rows)
        for slot, (keys, values) in enumerate(zip(self._keys, self._values, strict=True)):
            torch.cat([each[slot] for each, _ in segments], 1, out=keys[:, :count])
            torch.cat([each[slot] for _, each in segments], 1, out=values[:, :count])

    def _after_prefix(self, batch: ForwardBatch) -> ForwardBatch:
        """The batch, which reads the segments in place before the rows of this cache."""
        if self._held is None:
            return batch
        segments = [rows for _, rows in self._prefixes.cache.chain_of(self._held)]
        return replace(batch, prefix=ReadPrefix(segments, self.shape.slots, self.attend_own))

    def usage(self, paths: Sequence[int]) -> KVUsage:
        """Rows that are read in place count as the run's own."""
        own, rows = super().usage(paths), self.rows_in_place
        if self._tokens_reused:
            own = structs.replace(own, tokens_reused=self._tokens_reused)
        if self._held is None:
            return own
        is_shared, held = len(self._table.index) > 1, rows * self.shape.row_bytes
        return structs.replace(
            own,
            bytes_held=own.bytes_held + held,
            peak_bytes=own.peak_bytes + held,
            rows_shared=own.rows_shared + rows * is_shared,
            rows_private=own.rows_private + rows * (not is_shared),
            rows_reused=rows,
            other_runs=self._held.readers - 1,
            paths=tuple(
                PathRows(path, shared + rows * is_shared, private + rows * (not is_shared))
                for path, shared, private in own.paths
            ),
        )


def _count(rows: Rows) -> int:
    return rows[0][0].shape[1]


def _rows_at(tensors: Sequence[Tensor], rows: NDArray[np.int64]) -> list[Tensor]:
    if (np.diff(rows) == 1).all():  # as in a prompt; this is faster
        return [tensor[:, rows[0] : rows[-1] + 1].clone() for tensor in tensors]
    chosen = torch.from_numpy(rows).to(tensors[0].device)
    return [tensor.index_select(1, chosen) for tensor in tensors]
