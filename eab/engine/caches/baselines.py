"""The caches that the tree is compared with.

`deep-copy`: one cache per path, copied completely at a fork. Each cache grows by concatenation at
every step, in every layer, as the DynamicCache of transformers does. At a fork the first child
takes over the parent's tensors, and each further child gets a copy.

`concat-cow`: copy-on-write by concatenation. A path is a chain of segments, some shared with
others. The first implementation of EAB works this way. A fork copies nothing: the children refer to
their parent's segments, which no longer change. New tokens of a path go into its own segment, which
becomes a new, longer tensor at every step (torch.cat). For attention, the segments of the chain are
concatenated to one temporary tensor, in every layer and for every path. These copies count as
copied bytes, and the temporary tensors count for the peak.

`recompute`: no cache. Every step sends the whole text of every live path through the model again.
Nothing is kept between steps, so nothing is shared, copied or allocated. The cost is time: the
number of tokens per forward pass grows with paths x length. While a layer computes its attention, K
and V of all these tokens exist in this layer; this is the peak.
"""

from bisect import insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from eab.engine.caches.base import ForwardBatch
from eab.engine.caches.ledger import check_limit
from eab.engine.caches.per_path import KVTensors, PerPathCache
from eab.engine.caches.shape import KVShape
from eab.run.events import KVUsage, PathRows


@dataclass(slots=True, eq=False)
class _Segment(KVTensors):
    paths: int = 1  # how many paths have the segment in their chain


@dataclass(slots=True)
class _Chain:
    """The rows that one path sees."""

    # Segments of its ancestors, each with the number of its leading rows that are visible
    shared: tuple[tuple[_Segment, int], ...] = ()
    own: _Segment | None = None

    @property
    def parts(self) -> tuple[tuple[_Segment, int], ...]:
        return self.shared if self.own is None else (*self.shared, (self.own, self.own.rows))

    @property
    def length(self) -> int:
        return sum(rows for _, rows in self.parts)


class ChainCache(PerPathCache):
    """A chain of segments per path."""

    def __init__(self, shape: KVShape, byte_limit: int) -> None:
        super().__init__(shape, byte_limit)
        self._chains = {0: _Chain()}

    @property
    def bytes_held(self) -> int:
        """Bytes of all segments, each counted once (measured)."""
        return sum(tensor.nbytes for segment in self._segments() for tensor in segment.tensors)

    def _segments(self) -> set[_Segment]:
        return {segment for chain in self._chains.values() for segment, _ in chain.parts}

    def prepare(
        self,
        paths: Sequence[int],
        tokens: Sequence[Sequence[int]],
        logits_to_keep: Sequence[int] | None = None,
    ) -> ForwardBatch:
        check_limit(self.bytes_held + sum(map(len, tokens)) * self.shape.row_bytes, self.byte_limit)
        starts = [self._chains[path].length for path in paths]
        for path, new in zip(paths, tokens, strict=True):
            chain = self._chains[path]
            chain.own = chain.own or _Segment(*self.shape.empty_tensors())
            chain.own.rows += len(new)
        return self._make_batch(paths, tokens, starts, logits_to_keep)

    def _store(self, path: int, slot: int, key: Tensor, value: Tensor) -> None:
        own = self._chains[path].own
        assert own is not None
        self._append(own, slot, key, value)

    def _seen(self, path: int, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        chain = self._chains[path]
        assert chain.own is not None
        if not chain.shared:
            return chain.own.keys[slot], chain.own.values[slot]
        parts = chain.parts
        return self._joined(
            [(part.keys[slot][:, :rows], part.values[slot][:, :rows]) for part, rows in parts]
        )

    def release(self, path: int) -> None:
        for segment, _ in self._chains.pop(path).parts:
            self._release_segment(segment)

    def _release_segment(self, segment: _Segment) -> None:
        segment.paths -= 1
        if segment.paths == 0:
            self._ledger.freed(*segment.tensors)

    def trim(self, path: int, length: int) -> None:
        """Rows trimmed from a shared segment are kept until its last path ends."""
        chain = self._chains[path]
        if chain.own is not None:
            own, kept = chain.own, length - (chain.length - chain.own.rows)
            if kept <= 0:
                self._release_segment(own)
                chain.own = None
            elif kept < own.rows:
                self._truncate(own, kept)
        shared, chain.shared = chain.shared, ()
        for segment, rows in shared:
            kept = min(rows, length - chain.length) if chain.own is None else rows
            if kept > 0:
                chain.shared += ((segment, kept),)
            else:
                self._release_segment(segment)

    def usage(self, paths: Sequence[int]) -> KVUsage:
        """Spare rows are those of shared segments that all their paths have trimmed."""
        # For each segment: how many of its rows each of its paths sees, in ascending order.
        visible: defaultdict[_Segment, list[int]] = defaultdict(list)
        for chain in self._chains.values():
            for segment, rows in chain.parts:
                insort(visible[segment], rows)
        used = sum(depths[-1] for depths in visible.values())
        shared = sum(map(_shared_rows, visible.values()))
        return KVUsage(
            bytes_held=self.bytes_held,
            rows_shared=shared,
            rows_private=used - shared,
            rows_spare=sum(segment.rows for segment in visible) - used,
            rows_independent=sum(self._chains[path].length for path in paths),
            paths=tuple(self._path_rows(path, visible) for path in paths),
            **self._ledger.totals(),
        )

    def _path_rows(self, path: int, visible: Mapping[_Segment, list[int]]) -> PathRows:
        chain = self._chains[path]
        own = sum(max(0, rows - _shared_rows(visible[segment])) for segment, rows in chain.parts)
        return PathRows(path, chain.length - own, own)


def _shared_rows(depths: Sequence[int]) -> int:
    """Rows of a segment that two or more paths see: the second largest number of visible rows,
    because every path sees the leading ones.
    """
    return depths[-2] if len(depths) > 1 else 0


class ConcatCowCache(ChainCache):
    """Paths with a common prefix share its segments."""

    def fork(self, path: int, children: Sequence[int]) -> None:
        """The parent's own segment becomes a shared one."""
        parts = self._chains.pop(path).parts
        for segment, _ in parts:
            segment.paths += len(children) - 1
        self._chains |= {child: _Chain(parts) for child in children}


class DeepCopyCache(ChainCache):
    """Each path has a single segment, and nothing is shared."""

    def fork(self, path: int, children: Sequence[int]) -> None:
        chain = self._chains[path]
        copied = (len(children) - 1) * sum(t.nbytes for own, _ in chain.parts for t in own.tensors)
        check_limit(self.bytes_held + copied, self.byte_limit)
        del self._chains[path]
        self._chains[children[0]] = chain
        for child in children[1:]:
            self._chains[child] = _Chain(own=chain.own and self._copy(chain.own))

    def _copy(self, own: _Segment) -> _Segment:
        keys, values = ([tensor.clone() for tensor in each] for each in (own.keys, own.values))
        for tensor in (*keys, *values):
            self._ledger.allocated(tensor, copied=tensor.nbytes)
        return _Segment(keys, values, own.rows)


class Recompute(PerPathCache):
    """Nothing is held, but a forward pass with more tokens takes more memory. So `byte_limit`
    bounds K and V that one forward pass computes in all layers.
    """

    def __init__(self, shape: KVShape, byte_limit: int) -> None:
        super().__init__(shape, byte_limit)
        self._texts: dict[int, list[int]] = {0: []}

    @property
    def bytes_held(self) -> int:
        """Zero: nothing is kept after the forward pass."""
        return 0

    def prepare(
        self,
        paths: Sequence[int],
        tokens: Sequence[Sequence[int]],
        logits_to_keep: Sequence[int] | None = None,
    ) -> ForwardBatch:
        """The batch holds the whole text of each path, from position 0."""
        texts = [[*self._texts[path], *new] for path, new in zip(paths, tokens, strict=True)]
        needed = sum(map(len, texts)) * self.shape.row_bytes
        check_limit(
            needed, self.byte_limit, what="one forward pass over all texts computes K and V of"
        )
        self._texts |= zip(paths, texts, strict=True)
        return self._make_batch(paths, texts, [0] * len(texts), logits_to_keep)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """K and V belong to the model; their bytes count for the peak."""
        self._ledger.peak_bytes = max(self._ledger.peak_bytes, key.nbytes + value.nbytes)
        return super().attend(layer, query, key, value, scale)

    def _store(self, path: int, slot: int, key: Tensor, value: Tensor) -> None:
        """Nothing is kept."""

    def _seen(self, path: int, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return key, value

    def fork(self, path: int, children: Sequence[int]) -> None:
        """Only token ids are kept."""
        text = self._texts.pop(path)
        self._texts |= {child: text for child in children}  # never changed in place

    def release(self, path: int) -> None:
        del self._texts[path]

    def trim(self, path: int, length: int) -> None:
        self._texts[path] = self._texts[path][:length]

    def usage(self, paths: Sequence[int]) -> KVUsage:
        return KVUsage(
            bytes_held=0,
            rows_shared=0,
            rows_private=0,
            rows_spare=0,
            rows_independent=sum(len(self._texts[path]) for path in paths),
            paths=tuple(PathRows(path, 0, 0) for path in paths),
            **self._ledger.totals(),
        )
