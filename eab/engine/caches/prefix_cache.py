"""K and V of computed texts, kept for later runs with the same prefix.

The texts form a radix tree, as in SGLang's RadixAttention (Zheng et al., arXiv 2312.07104): a
segment holds the rows of the tokens that its text adds to its parent's text. Segments are never
changed while a pass reads them. A run holds the segments that it reads; the others are evicted,
least recently used first, when the byte limit is reached.

Texts are kept apart by scope: a run finds only what runs of its own scope have computed, so the
time that a prefill takes does not reveal what others have typed.

A run has a tree cache that starts with rows of the prefix cache, and adds its own rows to it. Long
segments are read in place, by all runs together (see `attention`). The rows of short ones are
copied, because one more attention call would cost more. All are copied where only the plain kernel
can be used: for padded attention, on CUDA, and if a layer reads only some of the rows before a
token, or scores them differently.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Final

import numpy as np
import torch
from msgspec import structs
from numpy.typing import NDArray
from torch import Tensor

from eab.config import PREFIX_CACHE_MIB, AllocationStep
from eab.engine.caches.attention import ReadPrefix, Rows
from eab.engine.caches.base import ForwardBatch
from eab.engine.caches.kv_pool import KVPool
from eab.engine.caches.shape import EVERYTHING, KVShape
from eab.engine.caches.tree import TreeCache
from eab.run.events import KVUsage, PathRows


@dataclass(slots=True, eq=False)
class PrefixSegment:
    """The rows of `tokens`, which follow the text of `parent`."""

    tokens: tuple[int, ...]
    keys: list[Tensor]  # (G, n, D) for each layer that has its own K and V
    values: list[Tensor]
    parent: "PrefixSegment | None"
    children: dict[int, "PrefixSegment"] = field(default_factory=dict)  # by their first token
    readers: int = 0  # runs that hold it, or a segment after it
    used_at: int = 0  # when it was last found or added, by the cache's own clock
    found: int = 0  # how many runs found it

    @property
    def chain(self) -> list["PrefixSegment"]:
        """The segments of its whole text, in order."""
        segments = [self]
        while segments[-1].parent is not None and segments[-1].parent.tokens:
            segments.append(segments[-1].parent)
        return segments[::-1]

    @property
    def length(self) -> int:
        """The number of tokens of its whole text."""
        return sum(len(segment.tokens) for segment in self.chain)


class PrefixCache:
    """The segments of one model. Thread-safe.

    Args:
        byte_limit: The most bytes that all segments may hold. Segments that runs hold are
            never evicted, and a text for which there is no room is not kept.
    """

    def __init__(self, shape: KVShape, byte_limit: int) -> None:
        self.shape, self.byte_limit = shape, byte_limit
        self._roots: dict[str, PrefixSegment] = {}  # by scope; a root has no tokens
        self._rows = self._clock = 0
        self._lock = RLock()
        self.tokens_asked = self.tokens_found = 0  # of all texts that runs looked up

    @property
    def bytes_held(self) -> int:
        """Bytes of all segments."""
        return self._rows * self.shape.row_bytes

    @property
    def roots(self) -> dict[str, PrefixSegment]:
        """The root of each scope: an empty text, followed by the segments."""
        return self._roots

    def hold(self, scope: str, text: Sequence[int]) -> PrefixSegment | None:
        """Find the longest known prefix of a run's text, and hold its segments until `let_go`.
        Returns the last of these segments; None if no prefix is known.
        """
        with self._lock:
            segment, length = self._find(scope, text)
            self.tokens_asked += len(text)
            self.tokens_found += length
            for held in segment.chain if length else ():
                held.found += 1
                held.readers += 1
            return segment if length else None

    def let_go(self, segment: PrefixSegment, until: PrefixSegment | None = None) -> None:
        """Release this segment and those before it, but keep the segments up to `until`."""
        with self._lock:
            kept = [] if until is None else until.chain
            for held in segment.chain:
                held.readers -= held not in kept

    def chain_of(self, segment: PrefixSegment) -> list[tuple[PrefixSegment, Rows]]:
        """The segments of the whole text of a held segment, and their rows, which stay as they are
        even if a segment is split meanwhile.
        """
        with self._lock:
            return [(held, (held.keys, held.values)) for held in segment.chain]

    def known(self, scope: str, text: Sequence[int]) -> int:
        """How many leading tokens of a text are in the cache; changes nothing."""
        with self._lock:
            root = self._roots.get(scope)
            return sum(same for _, same in _along(root, text)) if root else 0

    def add(self, scope: str, text: Sequence[int], rows: Callable[[int, int], Rows]) -> None:
        """Add the rows of a text that are not in the cache yet.

        Args:
            rows: Returns a copy of the rows from one position up to, but not including, another.
        """
        with self._lock:
            parent, length = self._find(scope, text)
            needed = (len(text) - length) * self.shape.row_bytes
            if not needed:
                return
            parent.readers += 1  # so that making room does not evict it
            fits = self.make_room(needed)
            parent.readers -= 1
            if not fits:
                return
            keys, values = rows(length, len(text))
            segment = PrefixSegment(tuple(text[length:]), keys, values, parent, used_at=self._clock)
            parent.children[segment.tokens[0]] = segment
            self._rows += len(segment.tokens)

    def make_room(self, needed: int) -> bool:
        """Evict segments until this many more bytes fit into the limit; returns whether they do.
        If they can never fit, nothing is evicted.
        """
        with self._lock:
            over = self.bytes_held + needed - self.byte_limit
            if over <= 0:
                return True
            if not self.fits(needed):
                return False
            self.evict(max(over, self.byte_limit // 8))  # not again for every text
            return self.bytes_held + needed <= self.byte_limit

    def fits(self, needed: int) -> bool:
        """Whether there is room for this many bytes in addition to the segments that runs hold."""
        with self._lock:
            held = sum(len(segment.tokens) for segment in self.segments() if segment.readers)
            return held * self.shape.row_bytes + needed <= self.byte_limit

    def evict(self, least: int) -> None:
        """Evict the least recently used segments that no run holds, until at least this many bytes
        are freed, or no such segment is left.
        """
        with self._lock:
            goal = self.bytes_held - least
            while self.bytes_held > goal:
                ends = [
                    segment
                    for segment in self.segments()
                    if not (segment.children or segment.readers)
                ]
                if not ends:
                    return
                for segment in sorted(ends, key=lambda segment: segment.used_at):
                    if self.bytes_held > goal:
                        self._drop(segment)

    def segments(self) -> Iterator[PrefixSegment]:
        """All segments, each before those that follow it."""
        waiting = [*self._roots.values()]
        while waiting:
            segment = waiting.pop()
            waiting += segment.children.values()
            if segment.tokens:
                yield segment

    def texts(self) -> list[tuple[PrefixSegment, tuple[int, ...]]]:
        """All segments with the tokens of their whole text, each before those that follow it."""
        with self._lock:
            texts: dict[int, tuple[int, ...]] = {}
            for segment in self.segments():
                texts[id(segment)] = (*texts.get(id(segment.parent), ()), *segment.tokens)
            return [(segment, texts[id(segment)]) for segment in self.segments()]

    def _find(self, scope: str, text: Sequence[int]) -> tuple[PrefixSegment, int]:
        """The segment that ends with the longest known prefix of a text, and the length of the
        prefix. A segment that goes beyond the prefix is split there.
        """
        self._clock += 1
        segment, length = self._roots.setdefault(scope, PrefixSegment((), [], [], None)), 0
        for after, same in _along(segment, text):
            segment = after if same == len(after.tokens) else _split(after, same)
            segment.used_at = self._clock
            length += same
        return segment, length

    def _drop(self, segment: PrefixSegment) -> None:
        assert segment.parent is not None
        del segment.parent.children[segment.tokens[0]]
        self._rows -= len(segment.tokens)
        self._roots = {
            scope: root for scope, root in self._roots.items() if root.children or root.readers
        }


def _along(segment: PrefixSegment, text: Sequence[int]) -> Iterator[tuple[PrefixSegment, int]]:
    """The segments along a text that follows this one, each with how many of its tokens agree."""
    length = 0
    while length < len(text) and (after := segment.children.get(text[length])) is not None:
        same = common_length(after.tokens, text[length:])
        ends = same < len(after.tokens)
        yield after, same
        if ends:
            return
        segment, length = after, length + same


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """The length of the longest common prefix of two texts."""
    most = min(len(first), len(second))
    if tuple(first[:most]) == tuple(second[:most]):
        return most
    return next(at for at in range(most) if first[at] != second[at])


def _split(segment: PrefixSegment, length: int) -> PrefixSegment:
    """Move the first `length` tokens of a segment into a new segment, which is returned. Runs that
    hold the segment hold both. The rows of both are copied, so that each can be evicted alone.
    """
    parent = segment.parent
    assert parent is not None
    first = PrefixSegment(
        segment.tokens[:length],
        [rows[:, :length].clone() for rows in segment.keys],
        [rows[:, :length].clone() for rows in segment.values],
        parent,
        {segment.tokens[length]: segment},
        segment.readers,
        segment.used_at,
        segment.found,
    )
    parent.children[segment.tokens[0]] = first
    segment.parent, segment.tokens = first, segment.tokens[length:]
    segment.keys = [rows[:, length:].clone() for rows in segment.keys]
    segment.values = [rows[:, length:].clone() for rows in segment.values]
    return first


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
        self._table.assign([0], np.array([count]), self._copied_tokens, rows)
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
