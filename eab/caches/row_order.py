"""The order in which the rows of a tree cache are read fastest, and when it pays to move them.

As paths fork and end, rows that no path sees appear between the others, suffix blocks (see
`cascade`) break up, and attention visits more rows than it needs. Moving the rows costs about as
much as a few steps. So each step notes its cost beyond the minimum, and the rows move once these
add up to the price of a move: whatever follows, the total is at most about twice that of moving at
the best moments. Costs are counted, not timed, and do not depend on r, because the same run must
round in the same way every time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from eab.caches.cascade import CALL_COST, MAX_BLOCKS, SuffixBlock, block_cost, masked_cost

# In the units of `cascade`.
MOVE_COST: Final = 20 * CALL_COST  # to move rows, whatever their number
MOVED_ROW_COST: Final = 12
MOST_SPANS: Final = MAX_BLOCKS // 2  # with one block each; the other blocks are for new rows
LEAST_SAVING: Final = 8  # moving the rows must save at least an 8th of a step's cost


@dataclass(slots=True)
class Upkeep:
    """What the steps since the rows were last in order have cost beyond the minimum."""

    wasted: int = 0
    patience: int = 1  # doubles while there is no better order

    def note(self, cost: int, used: int, common: int, paths: int) -> None:
        """Note a step that cost this much for `used` rows, of which all paths see `common`."""
        blocks = masked_cost(common, paths) + block_cost(used - common, 1)
        self.wasted += max(0, cost - min(masked_cost(used, paths), blocks))

    def is_due(self, used: int) -> bool:
        """Whether the waste has reached the price of moving the rows."""
        return self.wasted >= self.patience * (MOVE_COST + MOVED_ROW_COST * used)

    def done(self, moved: bool) -> None:
        """Note that the rows have moved, or that there was no better order."""
        self.wasted, self.patience = 0, 1 if moved else min(2 * self.patience, 64)


@dataclass(frozen=True, slots=True)
class RowOrder:
    """A new order of rows, given by their current numbers."""

    rows: NDArray[np.int64]
    blocks: list[SuffixBlock]
    cost: int  # of attention over the rows


def best_order(
    visible: NDArray[np.bool_],
    positions: NDArray[np.int64],
    paths: Sequence[int],
    cascades: bool,
) -> RowOrder:
    """The best order of the rows that paths see: ancestors first, and then, where it pays off, the
    suffixes of blocks, path by path.

    Between two forks the same number of rows lies at each position, and every path sees one of
    them: these rows are candidates for a block.

    Args:
        visible: Which rows each path sees, (P, C).
        positions: The position of each row in its paths, (C,).
        paths: The paths, in the order of `visible`.
        cascades: Whether suffix blocks may be used.
    """
    seen_by = np.count_nonzero(visible, axis=0)
    rows = np.flatnonzero(seen_by)
    at, seen_by, lead = positions[rows], seen_by[rows], visible[:, rows].argmax(axis=0)
    block_of = np.zeros(len(rows), dtype=np.int64)  # 0: read under a mask
    spans = _best_spans(at, seen_by, len(paths)) if cascades else []
    for number, span in enumerate(spans, start=1):
        block_of[(at >= span.first) & (at < span.end)] = number
    inside = block_of > 0
    order = np.lexsort((np.where(inside, at, lead), np.where(inside, lead, at), block_of))
    start = masked = len(rows) - sum(span.rows for span in spans)
    blocks = []
    for span in spans:
        steps = span.end - span.first
        leads = lead[order[start : start + span.rows : steps]]
        blocks.append(SuffixBlock(start, tuple(paths[index] for index in leads), steps, True))
        start += span.rows
    cost = masked_cost(masked, len(paths)) + sum(span.cost for span in spans)
    return RowOrder(rows[order], blocks, cost)


@dataclass(frozen=True, slots=True)
class _Span:
    """The positions from `first` to `end`, between two forks."""

    first: int
    end: int
    rows: int
    most: int  # paths that see one of its rows

    @property
    def cost(self) -> int:
        return block_cost(self.rows, self.most)


def _best_spans(at: NDArray[np.int64], seen_by: NDArray[np.int64], paths: int) -> list[_Span]:
    """The spans that are worth a block, by position."""
    if not len(at):
        return []
    count, seen = np.bincount(at), np.bincount(at, weights=seen_by)
    most = np.zeros(len(count), dtype=np.int64)
    np.maximum.at(most, at, seen_by)
    usable = (seen == paths) & (count > 1)
    begins = np.flatnonzero(np.diff(np.where(usable, count, 0), prepend=0))
    spans = [
        _Span(first, end, int(count[first:end].sum()), int(most[first]))
        for first, end in pairwise([*begins.tolist(), len(count)])
        if usable[first]
    ]
    saved = {span: masked_cost(span.rows, paths) - span.cost for span in spans}
    best = sorted((span for span in spans if saved[span] > 0), key=saved.__getitem__)
    return sorted(best[-MOST_SPANS:], key=lambda span: span.first)
