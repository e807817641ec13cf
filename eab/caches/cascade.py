"""Lanes: stretches of the tree cache in which every row is private to one path, laid out so that no
copy is needed.

While the same n paths write one token each, step after step, their rows follow each other in the
order of the paths: row `start + s * n + i` belongs to lane i. Seen with strides, that is a batch of
n short sequences, and attention over it visits each row once instead of once per path. What several
paths share is read in one masked pass over the rows before; the two parts are merged by their
log-sum-exp.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Costs in units of one row seen by one path in the masked pass, measured on 2 cores in float32 with
# heads of 64
# (benchmarks/attention.py). Fixed numbers: the same run must round the same way every time.
LANE_ROW: Final = 8  # one row of one lane: short products use the processor badly
CALL: Final = 10_000  # one more attention call and its merging
MAX_BLOCKS: Final = 4


@dataclass(frozen=True, slots=True)
class SuffixBlock:
    """Rows [start, start + steps * lanes) of `writers`, one lane each."""

    start: int
    writers: tuple[int, ...]
    steps: int

    @property
    def lanes(self) -> int:
        """Number of lanes."""
        return len(self.writers)

    @property
    def end(self) -> int:
        """First row after it."""
        return self.start + self.steps * self.lanes


@dataclass(frozen=True, slots=True)
class SuffixPart:
    """How the paths of a pass look into a stretch.

    queries: (lanes, m) the queries of each lane, filled up with query 0. back: (P,) where the
    answer to each query is.
    """

    stretch: SuffixBlock
    queries: NDArray[np.int64]
    back: NDArray[np.int64]


def extended(
    stretches: Sequence[SuffixBlock], start: int, writers: tuple[int, ...]
) -> list[SuffixBlock]:
    """The stretches after `writers` wrote one row each from row `start` on."""
    if stretches and stretches[-1].end == start and stretches[-1].writers == writers:
        return [*stretches[:-1], SuffixBlock(stretches[-1].start, writers, stretches[-1].steps + 1)]
    connected = stretches if stretches and stretches[-1].end == start else ()
    return [*connected, SuffixBlock(start, writers, 1)][-MAX_BLOCKS:]


def compacted(stretches: Sequence[SuffixBlock], kept: NDArray[np.int64]) -> list[SuffixBlock]:
    """The stretches after the rows `kept` (ascending) moved to the front, in order; lanes that
    nobody sees are gone.
    """
    found = []
    for stretch in stretches:
        first_rows = stretch.start + np.arange(stretch.lanes)
        alive = np.isin(first_rows, kept)
        writers = tuple(path for path, lives in zip(stretch.writers, alive, strict=True) if lives)
        if writers:
            found.append(
                SuffixBlock(int(np.searchsorted(kept, stretch.start)), writers, stretch.steps)
            )
    return found


def worthwhile(stretches: Sequence[SuffixBlock], seen: NDArray[np.bool_]) -> list[SuffixPart]:
    """The last stretches, as many as it pays to read in lanes. seen: (P, rows), which rows each
    path sees.
    """
    best: list[SuffixPart] = []
    parts: list[SuffixPart] = []
    gain = best_gain = 0
    for stretch in reversed(stretches):
        part = _part(stretch, seen)
        if part is None:
            break
        parts.insert(0, part)
        rows = stretch.end - stretch.start
        gain += rows * len(seen) - CALL - LANE_ROW * rows * part.queries.shape[1]
        if gain > best_gain:
            best, best_gain = list(parts), gain
    return best


def _part(stretch: SuffixBlock, seen: NDArray[np.bool_]) -> SuffixPart | None:
    """None if some path sees no lane of the stretch, or rows of several, or nothing before it for
    the masked pass.
    """
    sees = seen[:, stretch.start : stretch.start + stretch.lanes]
    if not (sees.sum(axis=1) == 1).all() or not seen[:, : stretch.start].any(axis=1).all():
        return None
    lane = sees.argmax(axis=1)
    order = np.argsort(lane, kind="stable")
    first = np.searchsorted(lane[order], lane[order])
    place = np.arange(len(lane)) - first  # of a query among those of its lane
    queries = np.zeros((stretch.lanes, int(place.max()) + 1), dtype=np.int64)
    queries[lane[order], place] = order
    back = np.empty(len(lane), dtype=np.int64)
    back[order] = lane[order] * queries.shape[1] + place
    return SuffixPart(stretch, queries, back)
