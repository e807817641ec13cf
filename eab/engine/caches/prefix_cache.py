"""K and V of computed texts, kept for later runs with the same prefix.

The texts form a radix tree, as in SGLang's RadixAttention (Zheng et al., arXiv 2312.07104): a
segment holds the rows of the tokens that its text adds to its parent's text. Segments are never
changed while a pass reads them. A run holds the segments that it reads; the others are evicted,
least recently used first, when the byte limit is reached.

Texts are kept apart by scope: a run finds only what runs of its own scope have computed, so the
time that a prefill takes does not reveal what others have typed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import TypeAlias

from torch import Tensor

from eab.engine.caches.shape import KVShape

# K and V of some rows, (G, n, D) each, for each layer that has its own
Rows: TypeAlias = tuple[list[Tensor], list[Tensor]]


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
