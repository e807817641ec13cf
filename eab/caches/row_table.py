"""Which path sees which row: the books of copy-on-write."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from eab.events import PathRows


class RowTable:
    """The rows that each path sees. Path 0 exists from the start, without rows."""

    def __init__(self) -> None:
        self.visible = np.zeros((1, 0), dtype=np.bool_)  # (path indices, C): what a path sees
        self.tokens = np.zeros(0, dtype=np.int64)  # (C,): the id of the row's token
        self.positions = np.zeros(0, dtype=np.int64)  # (C,): of the row's token in its path
        self.ref_counts = np.zeros(0, dtype=np.int64)  # (C,): how many paths see the row
        self.lengths = {0: 0}  # of each path's text
        self.index = {0: 0}  # path -> its index in `visible`
        self._free_indices: list[int] = []

    @property
    def used(self) -> NDArray[np.int64]:
        """The rows that some path sees, in ascending order."""
        return np.flatnonzero(self.ref_counts)

    def free(self, count: int) -> NDArray[np.int64]:
        """The lowest free rows, at most `count` of them."""
        return np.flatnonzero(self.ref_counts == 0)[:count]

    def of_path(self, path: int) -> NDArray[np.int64]:
        """The rows that a path sees, in the order of its text."""
        seen = np.flatnonzero(self.visible[self.index[path]])
        return seen[np.argsort(self.positions[seen])]

    @property
    def by_path(self) -> NDArray[np.int64]:
        """All rows: those of each path side by side, which are read faster, then the free ones."""
        first = self.visible.argmax(axis=0)  # the first path that sees the row
        return np.lexsort((self.positions, first, self.ref_counts == 0))

    def keep(self, rows: NDArray[np.int64], held: int) -> None:
        """Renumber: these rows become the first ones, in this order; the others of `held` rows are
        free.
        """
        more = held - len(rows)
        self.visible = np.pad(self.visible[:, rows], ((0, 0), (0, more)))
        self.tokens = np.pad(self.tokens[rows], (0, more))
        self.positions = np.pad(self.positions[rows], (0, more))
        self.ref_counts = np.pad(self.ref_counts[rows], (0, more))

    @property
    def ancestors_first(self) -> NDArray[np.int64]:
        """The rows that some path sees, each after those before it in its path."""
        used = self.used
        return used[np.argsort(self.positions[used], kind="stable")]

    def seen_by(self, rows: NDArray[np.int64], end: int) -> NDArray[np.bool_]:
        """Which of the rows before `end` the tokens of these rows see, (T, end)."""
        paths = self.visible[:, rows].argmax(axis=0)  # all that see a row share what precedes it
        before = self.positions[:end] <= self.positions[rows][:, None]
        seen: NDArray[np.bool_] = self.visible[paths, :end] & before
        return seen

    def assign(
        self,
        paths: Sequence[int],
        counts: NDArray[np.int64],
        tokens: Sequence[int],
        rows: NDArray[np.int64],
        end: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Assign new tokens, `counts` of each path, to rows; returns their positions, (T,), and
        which of the rows before `end` they see, (T, end).
        """
        first = np.cumsum(counts) - counts
        indices = np.array([self.index[path] for path in paths])
        lengths = np.array([self.lengths[path] for path in paths])
        positions = np.empty(len(rows), dtype=np.int64)
        visible = np.empty((len(rows), end), dtype=np.bool_)
        for offset in range(int(counts.max())):
            has = counts > offset  # the paths that have an offset-th new token
            token = first[has] + offset
            self.visible[indices[has], rows[token]] = True
            visible[token] = self.visible[indices[has], :end]
            positions[token] = lengths[has] + offset
        self.ref_counts[rows] = 1
        self.tokens[rows], self.positions[rows] = tokens, positions
        for path, count in zip(paths, counts.tolist(), strict=True):
            self.lengths[path] += count
        return positions, visible

    def fork(self, path: int, children: Sequence[int]) -> None:
        """End `path`; each child sees its rows."""
        index, length = self.index.pop(path), self.lengths.pop(path)
        self.ref_counts += self.visible[index] * (len(children) - 1)
        indices = [index, *(self._new_index() for _ in children[1:])]
        self.visible[indices] = self.visible[index]
        self.index |= zip(children, indices, strict=True)
        self.lengths |= dict.fromkeys(children, length)

    def release(self, path: int) -> None:
        """End `path`."""
        self.trim(path, 0)
        self._free_indices.append(self.index.pop(path))
        del self.lengths[path]

    def trim(self, path: int, length: int) -> None:
        """Let `path` see no token from position `length` on."""
        seen = self.visible[self.index[path]]
        hidden = seen & (self.positions >= length)
        seen &= ~hidden
        self.ref_counts -= hidden
        self.lengths[path] = min(self.lengths[path], length)

    def _new_index(self) -> int:
        if not self._free_indices:
            old = len(self.visible)
            self.visible = np.concatenate([self.visible, np.zeros_like(self.visible)])
            self._free_indices = list(range(2 * old - 1, old - 1, -1))
        return self._free_indices.pop()

    def shares(self, paths: Sequence[int]) -> tuple[PathRows, ...]:
        """How many rows of each path other paths see, too, and how many it alone sees."""
        shared = self.ref_counts > 1
        visible = self.visible[[self.index[path] for path in paths]]
        common = (visible & shared).sum(axis=1).tolist()
        own = (visible & ~shared).sum(axis=1).tolist()
        return tuple(map(PathRows, paths, common, own))
