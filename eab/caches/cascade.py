"""Which rows of the tree cache are private suffixes, laid out for shared-prefix attention.

Paths of a tree share a prefix and have private suffixes. Shared-prefix attention computes
attention over the prefix for all paths together and attention over the suffixes for each path,
and merges the two results by their log-sum-exp. The technique is known as Hydragen (Juravsky et
al., arXiv 2402.05099) and as cascade inference (FlashInfer).

Here, the suffixes need no copy at each step. A suffix block is a range of rows that, viewed with
strides, is a batch of n short sequences, so attention visits each of its rows once instead of once
per path. There are two kinds. While the same n paths write one token each, step after step, their
rows follow each other in the order of the paths: row `start + s * n + i` belongs to path i. When
rows are moved (see `row_order`), the rows of each suffix are put next to each other, at row
`start + i * steps + s`, which processors read about twice as fast. The rows before the first
block in use, and after the last one, are read under a mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Costs in units of one row seen by one path in masked attention, for float32 and heads of size 64.
# They lie between those of one thread and of two (benchmarks/attention.py --threads). The numbers
# are fixed, because the same run must round in the same way every time.
SUFFIX_ROW_COST: Final = 8  # one row of a suffix: short products use the processor poorly
SCATTERED_ROW_COST: Final = 10  # the same if the rows of a suffix are not adjacent
CALL_COST: Final = 6_000  # one more attention call and the merge of its result
MAX_BLOCKS: Final = 8


@dataclass(frozen=True, slots=True)
class SuffixBlock:
    """The rows [start, start + steps * suffixes)."""

    start: int
    writers: tuple[int, ...]  # the path of each suffix when its rows were written or moved
    steps: int  # rows of each suffix
    by_path: bool = False  # whether the rows of a suffix are adjacent; else those of a step

    @property
    def suffixes(self) -> int:
        """Number of suffixes."""
        return len(self.writers)

    @property
    def end(self) -> int:
        """First row after the block."""
        return self.start + self.steps * self.suffixes

    @property
    def first_rows(self) -> slice:
        """The first row of each suffix."""
        return slice(self.start, self.end, self.steps) if self.by_path else self._first_step

    @property
    def _first_step(self) -> slice:
        return slice(self.start, self.start + self.suffixes)


@dataclass(frozen=True, slots=True)
class SuffixQueries:
    """Which paths of a batch attend to which suffix of a block."""

    block: SuffixBlock
    # Batch indices of the paths that see each suffix, (suffixes, m), padded with 0
    queries: NDArray[np.int64]
    positions: NDArray[np.int64]  # position of each path in the flattened `queries`, (P,)

    @property
    def cost(self) -> int:
        """The cost of attention over the block."""
        return block_cost(self.block.end - self.block.start, self.queries.shape[1], self.block)


def block_cost(rows: int, most: int, block: SuffixBlock | None = None) -> int:
    """The cost of attention over `rows` rows of a block, if at most `most` paths see each suffix.
    Without `block`, the rows are ordered by path.
    """
    scattered = block is not None and not block.by_path
    return CALL_COST + rows * ((SCATTERED_ROW_COST if scattered else SUFFIX_ROW_COST) + most - 1)


def masked_cost(rows: int, paths: int) -> int:
    """The cost of attention of this many paths over `rows` rows under a mask; with few paths,
    memory is the bottleneck.
    """
    return rows * max(paths, SUFFIX_ROW_COST)


def next_slots(
    blocks: Sequence[SuffixBlock], end: int, writers: tuple[int, ...], gaps: bool
) -> list[int] | None:
    """The suffixes of the last block that these paths continue with one row each; None if the block
    does not end at row `end`, or does not have all of the paths in this order. With `gaps`, it may
    also have a few other paths, which have ended.
    """
    if not blocks or blocks[-1].by_path or blocks[-1].end != end:
        return None
    known = blocks[-1].writers
    if writers == known:
        return [*range(len(known))]
    if not gaps or not writers or len(writers) * 4 < len(known) * 3:
        return None
    slots = {path: slot for slot, path in enumerate(known)}
    continued = [slots.get(path, -1) for path in writers]
    rises = all(a < b for a, b in zip([-1, *continued], continued, strict=False))
    return continued if rises else None


def with_step(
    blocks: Sequence[SuffixBlock], start: int, writers: tuple[int, ...], continues: bool
) -> list[SuffixBlock]:
    """The blocks after new rows were written from row `start` on: one by each of `writers`, or any
    rows if that is empty. If it `continues`, the rows are one more step of the last block.
    """
    if continues:
        return [*blocks[:-1], replace(blocks[-1], steps=blocks[-1].steps + 1)]
    longer = [block for block in blocks if block.end <= start]
    longer += [SuffixBlock(start, writers, 1)] if writers else []
    if len(longer) > MAX_BLOCKS:
        longer.pop(next(i for i, block in enumerate(longer) if not block.by_path))
    return longer


@dataclass(frozen=True, slots=True)
class SuffixChoice:
    """The rows that a batch reads as suffixes: those of adjacent blocks; none if the chain is
    empty.
    """

    chain: Sequence[SuffixQueries]
    cost: int


def choose_blocks(blocks: Sequence[SuffixBlock], visible: NDArray[np.bool_]) -> SuffixChoice:
    """Choose the blocks to read as suffixes at the lowest cost; `visible` says which rows each path
    sees, (P, C).
    """
    paths, rows = visible.shape
    best = SuffixChoice((), masked_cost(rows, paths))
    chain: list[SuffixQueries] = []
    for block in blocks:
        if rows * paths <= CALL_COST:
            break
        queries = _assign_queries(block, visible)
        if queries is None:
            chain = []
            continue
        connected = chain and chain[-1].block.end == block.start
        chain = [*chain, queries] if connected else [queries]
        rest = CALL_COST * (block.end < rows) + masked_cost(rows - block.end, paths)
        for first in range(len(chain)):
            own = sum(part.cost for part in chain[first:])
            cost = masked_cost(chain[first].block.start, paths) + own + rest
            if cost < best.cost:
                best = SuffixChoice(chain[first:], cost)
    return best


def _assign_queries(block: SuffixBlock, visible: NDArray[np.bool_]) -> SuffixQueries | None:
    """Assign each path to the suffix that it sees; None if a path sees no suffix of the block, or
    several, or no row before the block, because its shared prefix would be empty.
    """
    sees = visible[:, block.first_rows]
    if not (np.count_nonzero(sees, axis=1) == 1).all():
        return None
    if not (visible[:, 0].all() or visible[:, : block.start].any(axis=1).all()):
        return None
    suffix = sees.argmax(axis=1)
    order = np.argsort(suffix, kind="stable")
    first = np.searchsorted(suffix[order], suffix[order])
    rank = np.arange(len(suffix)) - first  # of a query among those of its suffix
    queries = np.zeros((block.suffixes, int(rank.max()) + 1), dtype=np.int64)
    queries[suffix[order], rank] = order
    positions = np.empty(len(suffix), dtype=np.int64)
    positions[order] = suffix[order] * queries.shape[1] + rank
    return SuffixQueries(block, queries, positions)
