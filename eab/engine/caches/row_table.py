"""Which path sees which row: the books of copy-on-write."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eab.run.events import PathRows

Numbers = NDArray[np.int64]


class RowLists(NamedTuple):
    """The rows that each token of a batch reads, in the order of its text: the sums of a token must
    not depend on which rows its path has been given.
    """

    rows: Numbers  # token after token, (n,)
    starts: Numbers  # where those of each token start, and n, (T + 1,)

    def mask(self, end: int) -> NDArray[np.bool_]:
        """Which of the rows before `end` each token reads, (T, end)."""
        tokens = len(self.starts) - 1
        read = np.zeros((tokens, max(end, int(self.rows.max()) + 1)), dtype=np.bool_)
        read[np.repeat(np.arange(tokens), np.diff(self.starts)), self.rows] = True
        return read[:, :end]


def ranges(first: Numbers, end: Numbers) -> RowLists:
    """The numbers from `first` up to, but without, `end`, for each token, (T,)."""
    counts = end - first
    starts = np.concatenate([[0], counts.cumsum()])
    return RowLists(np.arange(starts[-1]) + np.repeat(first - starts[:-1], counts), starts)


class RowTable:
    """The rows of each path. Path 0 exists from the start, without rows.

    Attributes:
        rows: The rows of each path, in the order of its text, (path indices, L); after `lengths` of
            them, any numbers.
        lengths: How many rows each path has, (path indices,).
        index: The index of each path.
        tokens, positions: The id and the position of each row's token, (C,).
        ref_counts: How many paths see each row, (C,).
        before: How many tokens of each text come before those that have rows here.
    """

    def __init__(self) -> None:
        self.rows = np.zeros((1, 0), dtype=np.int64)
        self.lengths = np.zeros(1, dtype=np.int64)
        self.index = {0: 0}
        self.tokens, self.positions, self.ref_counts = np.zeros((3, 0), dtype=np.int64)
        self.before = 0
        self._free_indices: list[int] = []

    @property
    def count(self) -> int:
        """How many rows some path sees."""
        return int(np.count_nonzero(self.ref_counts))

    @property
    def used(self) -> Numbers:
        """The rows that some path sees, in ascending order."""
        return np.flatnonzero(self.ref_counts)

    def free(self, count: int) -> Numbers:
        """The lowest free rows, at most `count` of them."""
        return np.flatnonzero(self.ref_counts == 0)[:count]

    def of_path(self, path: int) -> Numbers:
        """The rows that a path sees, in the order of its text."""
        index = self.index[path]
        return self.rows[index, : self.lengths[index]].copy()

    @property
    def by_path(self) -> Numbers:
        """All rows: those of each path side by side, which are read faster, then the free ones."""
        listed = self.rows[np.arange(self.rows.shape[1]) < self.lengths[:, None]]
        places = np.unique(listed, return_index=True)[1]
        return np.concatenate([listed[np.sort(places)], np.flatnonzero(self.ref_counts == 0)])

    def keep(self, rows: Numbers, held: int) -> None:
        """Renumber: these rows become the first ones, in this order; the others of `held` rows are
        free.
        """
        new = np.zeros(len(self.ref_counts), dtype=np.int64)
        new[rows] = np.arange(len(rows))
        self.rows = new[self.rows]
        more = (0, held - len(rows))
        self.tokens, self.positions, self.ref_counts = (
            np.pad(each[rows], more) for each in (self.tokens, self.positions, self.ref_counts)
        )

    @property
    def ancestors_first(self) -> Numbers:
        """The rows that some path sees, each after those before it in its path."""
        used = self.used
        return used[np.argsort(self.positions[used], kind="stable")]

    def readers(self, rows: Numbers) -> Numbers:
        """For each row, the index of a path that sees it."""
        columns = self.positions[rows] - self.before
        sees = (self.rows[:, columns] == rows) & (columns < self.lengths[:, None])
        paths: Numbers = sees.argmax(axis=0)
        return paths

    def read_by(self, indices: Numbers, first: Numbers, positions: Numbers) -> RowLists:
        """The rows that tokens read, (T,) each: those of the paths with these indices, from a
        position to the token's own.
        """
        columns, starts = ranges(np.maximum(first - self.before, 0), positions - self.before + 1)
        return RowLists(self.rows[np.repeat(indices, np.diff(starts)), columns], starts)

    def assign(
        self, paths: Sequence[int], counts: Numbers, tokens: Sequence[int], rows: Numbers
    ) -> tuple[Numbers, Numbers]:
        """Assign new tokens, `counts` of each path, to rows; returns the indices of their paths and
        their positions, (T,) each.
        """
        own = np.array([self.index[path] for path in paths])
        first = self.lengths[own]
        columns, _ = ranges(first, first + counts)
        indices, missing = np.repeat(own, counts), int(columns.max()) + 1 - self.rows.shape[1]
        if missing > 0:
            self.rows = np.pad(self.rows, ((0, 0), (0, max(missing, self.rows.shape[1]))))
        self.rows[indices, columns] = rows
        self.lengths[own] += counts
        positions = columns + self.before
        self.ref_counts[rows] = 1
        self.tokens[rows], self.positions[rows] = tokens, positions
        return indices, positions

    def fork(self, path: int, children: Sequence[int]) -> None:
        """End `path`; each child sees its rows."""
        self.ref_counts[self.of_path(path)] += len(children) - 1
        index = self.index.pop(path)
        indices = [index, *(self._new_index() for _ in children[1:])]
        self.rows[indices], self.lengths[indices] = self.rows[index], self.lengths[index]
        self.index |= zip(children, indices, strict=True)

    def release(self, path: int) -> None:
        """End `path`."""
        self.trim(path, 0)
        self._free_indices.append(self.index.pop(path))

    def trim(self, path: int, length: int) -> None:
        """Let `path` see no token from position `length` on."""
        kept = max(0, length - self.before)
        self.ref_counts[self.of_path(path)[kept:]] -= 1
        index = self.index[path]
        self.lengths[index] = min(self.lengths[index], kept)

    def _new_index(self) -> int:
        if not self._free_indices:
            old = len(self.rows)
            self.rows = np.concatenate([self.rows, np.zeros_like(self.rows)])
            self.lengths = np.concatenate([self.lengths, np.zeros_like(self.lengths)])
            self._free_indices = list(range(2 * old - 1, old - 1, -1))
        return self._free_indices.pop()

    def shares(self, paths: Sequence[int]) -> tuple[PathRows, ...]:
        """How many rows of each path other paths see, too, and how many it alone sees."""
        indices = np.array([self.index[path] for path in paths], dtype=np.int64)
        lengths = self.lengths[indices]
        rows = self.rows[indices, : int(lengths.max(initial=0))]
        is_own = np.arange(rows.shape[1]) < lengths[:, None]
        common = ((self.ref_counts[rows] > 1) & is_own).sum(axis=1)
        return tuple(map(PathRows, paths, common.tolist(), (lengths - common).tolist()))
