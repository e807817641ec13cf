"""Which path sees which row, the books of copy-on-write, and how attention reads these rows.

Compiled code reads a list of the rows that each token sees. The plain way is PyTorch's: all rows
under a mask or, if that reads less, the rows of each token gathered into one batch.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eab.engine.caches.attention import (
    attention_mask,
    attention_with_lse,
    by_group,
    masked_attention,
)
from eab.engine.caches.shape import KVShape, LayerAttention, MaskKind, to_device
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


class ListedRows:
    """The rows that each token reads, in a list for compiled code, on the CPU; at least one row for
    each token.
    """

    def __init__(self, lists: RowLists) -> None:
        self._rows, self._starts = map(torch.from_numpy, lists)

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float, layer: LayerAttention
    ) -> Tensor:
        """See PlainRows."""
        return self._attend(query, keys, values, scale)[0]

    def attend_with_lse(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See PlainRows."""
        out, lse = self._attend(query, keys, values, scale)
        return out.transpose(0, 1), lse.t()

    def _attend(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        from eab.engine.compiled.attention import attend  # needs llvmlite

        return attend(query, keys, values, self._rows, self._starts, scale)


class PlainRows:
    """The rows that a prepared batch reads in layers of one kind."""

    @abstractmethod
    def _inputs(
        self, query: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries, keys, values and mask of one attention call."""

    @abstractmethod
    def _by_token(self, out: Tensor, groups: int) -> Tensor:
        """The output of that call, as (T, H, D)."""

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float, layer: LayerAttention
    ) -> Tensor:
        """The output of attention, (T, H, D); query (H, T, D), K and V of all rows, (G, C, D)."""
        out = masked_attention(*self._inputs(query, keys, values), scale, layer)
        return self._by_token(out, len(keys))

    def attend_with_lse(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """The same for an ordinary layer on a CPU, (H, T, D), and the log-sum-exp of the scores,
        (H, T).
        """
        found = attention_with_lse(*self._inputs(query, keys, values), scale)
        out, lse = (self._by_token(each, len(keys)) for each in (found[0], found[1][..., None]))
        return out.transpose(0, 1), lse[..., 0].t()


class MaskedRows(PlainRows):
    """The rows from `first` to `end` under a mask.

    Args:
        mask: Added to the scores, (T, rows); None if every token sees all of these rows.
    """

    def __init__(self, first: int, end: int, mask: Tensor | None) -> None:
        self.first, self.end, self.mask = first, end, mask

    def _inputs(
        self, query: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        rows = slice(self.first, self.end)
        return by_group(query, len(keys)), keys[:, rows], values[:, rows], self.mask

    def _by_token(self, out: Tensor, groups: int) -> Tensor:
        return out.permute(2, 0, 1, 3).flatten(1, 2)


def masked_rows(shape: KVShape, lists: RowLists, end: int, padded: bool) -> MaskedRows:
    """The rows before `end` under a mask; without padding, from the first row that some token
    reads.
    """
    first, tokens = 0, len(lists.starts) - 1
    if not padded:
        first = int(lists.rows.min())  # later if the layer reads only the last tokens
        if len(lists.rows) == tokens * (end - first):
            return MaskedRows(first, end, None)
    [seen] = to_device(shape.device, lists.mask(end)[:, first:])
    return MaskedRows(first, end, attention_mask(seen, shape.dtype))


class GatheredRows(PlainRows):
    """The rows of each token, copied into one batch of texts; a mask fills up the shorter ones."""

    def __init__(self, lists: RowLists, device: torch.device) -> None:
        lengths = np.diff(lists.starts)
        filled = np.arange(lengths.max()) < lengths[:, None]
        table = np.zeros(filled.shape, dtype=np.int64)
        table[filled] = lists.rows
        self._rows, filled_in = to_device(device, table.ravel(), filled)
        self._filled = None if filled.all() else filled_in  # (T, L)
        self._tokens = len(lengths)
        self._room: dict[tuple[int, ...], Tensor] = {}  # for all layers: new memory takes time

    def _inputs(
        self, query: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries by KV head and token, (G * T, 1, g, D), K and V, (G * T, L, D), and their mask,
        (G * T, 1, 1, L).
        """
        asking = by_group(query, len(keys)).transpose(1, 2).flatten(0, 1)[:, None]
        mask = None
        if self._filled is not None:
            mask = attention_mask(self._filled, query.dtype)
            mask = mask.repeat(len(keys), 1)[:, None, None]
        return asking, self._gathered(keys, 0), self._gathered(values, 1), mask

    def _gathered(self, rows: Tensor, place: int) -> Tensor:
        """The rows of each token and KV head, (G * T, L, D)."""
        groups, _, size = rows.shape
        key = (place, groups, size)
        if key not in self._room:
            self._room[key] = rows.new_empty((groups, len(self._rows), size))
        torch.index_select(rows, 1, self._rows, out=self._room[key])
        return self._room[key].view(groups * self._tokens, -1, size)

    def _by_token(self, out: Tensor, groups: int) -> Tensor:
        out = out.view(groups, self._tokens, *out.shape[2:])
        return out.transpose(0, 1).flatten(1, 2)


# Costs in units of one row that one token reads under a mask. They are
# fixed, because the same run must round in the same way every time.
GATHERED_ROW_COST: Final = 8  # copied, and read by one token only
FEW_TOKENS: Final = 4  # with fewer, reading the rows from memory takes the time


Reading: TypeAlias = ListedRows | PlainRows


def plan_readings(
    shape: KVShape, kinds: Sequence[MaskKind], lists: Sequence[RowLists], end: int, padded: bool
) -> list[Reading]:
    """How the layers of each kind read the rows before `end` that are listed for them. Padded
    attention reads all of them under a mask, so its shapes stay the same until the tensors grow.
    """
    made: dict[tuple[object, ...], Reading] = {}
    for own, kind in zip(lists, kinds, strict=True):
        key = (id(own), *kind[1:])
        if key in made:
            continue
        if kind.is_compiled and not padded:
            made[key] = ListedRows(own)
        elif kind.is_fused and not padded and gathering_reads_less(own, end):
            made[key] = GatheredRows(own, shape.device)
        else:
            made[key] = masked_rows(shape, own, end, padded)
    return [made[id(own), *kind[1:]] for own, kind in zip(lists, kinds, strict=True)]


def gathering_reads_less(lists: RowLists, end: int) -> bool:
    """Whether gathering the rows that each token reads reads less than a mask over all of them."""
    counts = np.diff(lists.starts)
    gathered = len(counts) * int(counts.max()) * GATHERED_ROW_COST
    return gathered < end * max(len(counts), FEW_TOKENS)
