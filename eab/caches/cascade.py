"""Which rows of the tree cache are private suffixes, laid out for shared-prefix attention.

Paths of a tree share a prefix and have private suffixes. Shared-prefix attention computes
attention over the prefix for all paths together and attention over the suffixes for each path,
and merges the two results by their log-sum-exp. The technique is known as Hydragen (Juravsky et
al., arXiv 2402.05099) and as cascade inference (FlashInfer).

Here, the suffixes need no copy. While the same n paths write one token
each, step after step, their rows follow each other in the order of the paths: row
`start + s * n + i` belongs to path i. This range of rows is a suffix block. Viewed with strides,
it is a batch of n short sequences, so attention visits each of its rows once instead of once per
path. The rows before the first block form the shared prefix, which is read under a mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Costs in units of one row seen by one path in masked attention, measured on 2 cores in float32
# with heads of size 64 (benchmarks/attention.py). The numbers are fixed, because the same run must
# round in the same way every time.
SUFFIX_ROW_COST: Final = 8  # one row of a suffix block: short products use the processor badly
CALL_COST: Final = 10_000  # one more attention call and its merging
MAX_BLOCKS: Final = 4


@dataclass(frozen=True, slots=True)
class SuffixBlock:
    """The rows [start, start + steps * suffixes), interleaved by path."""

    start: int
    writers: tuple[int, ...]  # the paths that wrote the rows, one private suffix each
    steps: int  # rows of each suffix

    @property
    def suffixes(self) -> int:
        """Number of suffixes."""
        return len(self.writers)

    @property
    def end(self) -> int:
        """First row after the block."""
        return self.start + self.steps * self.suffixes


@dataclass(frozen=True, slots=True)
class SuffixQueries:
    """Which paths of a batch attend to which suffix of a block."""

    block: SuffixBlock
    # Batch indices of the paths that see each suffix, (suffixes, m), padded with 0
    queries: NDArray[np.int64]
    positions: NDArray[np.int64]  # position of each path in the flattened `queries`, (P,)


def extend_blocks(
    blocks: Sequence[SuffixBlock], start: int, writers: tuple[int, ...]
) -> list[SuffixBlock]:
    """The blocks after `writers` wrote one row each, from row `start` on."""
    if blocks and blocks[-1].end == start and blocks[-1].writers == writers:
        return [*blocks[:-1], SuffixBlock(blocks[-1].start, writers, blocks[-1].steps + 1)]
    connected = blocks if blocks and blocks[-1].end == start else ()
    return [*connected, SuffixBlock(start, writers, 1)][-MAX_BLOCKS:]


def compact_blocks(blocks: Sequence[SuffixBlock], kept: NDArray[np.int64]) -> list[SuffixBlock]:
    """The blocks after the rows in use, `kept` in ascending order, have moved to the front;
    suffixes that no path sees are removed.
    """
    compacted = []
    for block in blocks:
        first_rows = block.start + np.arange(block.suffixes)
        alive = np.isin(first_rows, kept)
        writers = tuple(path for path, lives in zip(block.writers, alive, strict=True) if lives)
        if writers:
            start = int(np.searchsorted(kept, block.start))
            compacted.append(SuffixBlock(start, writers, block.steps))
    return compacted


def choose_blocks(blocks: Sequence[SuffixBlock], visible: NDArray[np.bool_]) -> list[SuffixQueries]:
    """Choose how many of the last blocks to read as suffixes, for the least cost; `visible` says
    which rows each path sees, (P, C).
    """
    best: list[SuffixQueries] = []
    chosen: list[SuffixQueries] = []
    gain = best_gain = 0
    for block in reversed(blocks):
        queries = _assign_queries(block, visible)
        if queries is None:
            break
        chosen.insert(0, queries)
        rows = block.end - block.start
        gain += rows * len(visible) - CALL_COST - SUFFIX_ROW_COST * rows * queries.queries.shape[1]
        if gain > best_gain:
            best, best_gain = list(chosen), gain
    return best


def _assign_queries(block: SuffixBlock, visible: NDArray[np.bool_]) -> SuffixQueries | None:
    """Assign each path to the suffix it sees; None if a path sees no suffix of the block, or
    several, or no row before the block, so that its shared prefix would be empty.
    """
    sees = visible[:, block.start : block.start + block.suffixes]
    if not (sees.sum(axis=1) == 1).all() or not visible[:, : block.start].any(axis=1).all():
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
