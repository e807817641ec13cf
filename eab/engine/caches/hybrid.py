"""The memory of a hybrid model: KV rows of its attention layers in a tree cache, shared by all
paths that descend from a token, and a state of constant size per path for its other layers.

The states are handled like any model's own memory (see `own`). Paths that go through the model
together have the same row in the memory object as in the batch of the tree.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec import structs
from torch import Tensor

from eab.config import AllocationStep
from eab.engine.caches.base import Attends, ForwardBatch
from eab.engine.caches.ledger import check_limit
from eab.engine.caches.own import OwnCache, RowsFor
from eab.engine.caches.shape import KVShape
from eab.engine.caches.tree import TreeCache
from eab.run.events import Growth, KVUsage


@dataclass(frozen=True, slots=True)
class _Layers:
    """A cache for some of a model's layers, listed by the model's own layer numbers."""

    cache: Attends
    numbers: tuple[int, ...]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        return self.cache.attend(self.numbers.index(layer), query, key, value, scale)


class HybridCache(OwnCache):
    """The rows and states of one run."""

    def __init__(self, shape: KVShape, r: AllocationStep, byte_limit: int) -> None:
        super().__init__(shape, byte_limit)
        assert shape.own is not None
        self._layers, self._one_by_one = shape.own.shared_layers, shape.own.whole_prompts
        self._row_bytes = 0  # states have no rows
        self._tree = TreeCache(replace(shape, own=None), r, byte_limit)
        self._batch: ForwardBatch | None = None  # of all paths of the pass, if they are alike
        self._growths: list[Growth] = []  # not reported yet

    @property
    def bytes_held(self) -> int:
        """Bytes of rows and states (measured; computed without a model)."""
        return super().bytes_held + self._tree.bytes_held

    def reserve(self, rows: int, steps: int | None) -> Growth | None:
        """Reserve rows; states are created when they are needed."""
        self._tree.byte_limit = max(0, self.byte_limit - super().bytes_held)
        return self._tree.reserve(rows, steps)

    def prepare(
        self,
        paths: Sequence[int],
        tokens: Sequence[Sequence[int]],
        logits_to_keep: Sequence[int] | None = None,
    ) -> ForwardBatch:
        """Paths whose token counts differ, because of draft tokens, get their rows when the model
        reads them, and so do tokens that it reads one by one.
        """
        keep = logits_to_keep or [1] * len(paths)
        drafting = [path for path, count in zip(paths, keep, strict=True) if count > 1]
        self._check_room(paths, tokens, drafting)
        states = super().bytes_held + len(drafting) * self.shape.state_bytes
        self._tree.byte_limit = max(0, self.byte_limit - states)
        starts = [self._places[path].held.length for path in paths]
        unread = [
            [*self._texts[path][start:], *new]
            for path, start, new in zip(paths, starts, tokens, strict=True)
        ]
        self._batch = None
        one_by_one = self._one_by_one and any(starts) and max(map(len, unread)) > 1
        if len(set(zip(starts, map(len, unread), strict=True))) == 1 and not one_by_one:
            self._batch = self._rows_of(paths, unread)
        else:
            rows = self._tree.end + sum(map(len, unread))
            check_limit(rows * self.shape.row_bytes, self._tree.byte_limit)
        growths, self._growths = tuple(self._growths), []
        return replace(super().prepare(paths, tokens, keep), growths=growths)

    def _rows_of(self, paths: Sequence[int], tokens: Sequence[Sequence[int]]) -> ForwardBatch:
        batch = self._tree.prepare(paths, tokens)
        self._growths += batch.growths
        return replace(batch, cache=_Layers(self._tree, self._layers))

    def _rows_for(self, paths: Sequence[int]) -> RowsFor:
        def rows(ids: Tensor) -> ForwardBatch:
            batch, self._batch = self._batch, None
            return batch or self._rows_of(paths, ids.tolist())

        return rows

    def _forget(self, paths: Sequence[int]) -> None:
        super()._forget(paths)
        for path in paths:
            self._tree.trim(path, 0)

    def fork(self, path: int, children: Sequence[int]) -> None:
        """Rows are shared immediately; states are copied in the next pass."""
        super().fork(path, children)
        self._tree.fork(path, children)

    def release(self, path: int) -> None:
        super().release(path)
        self._tree.release(path)

    def trim(self, path: int, length: int) -> None:
        """Rows end where the state does, so that both continue from there."""
        super().trim(path, length)
        self._tree.trim(path, self._places[path].held.length)

    def usage(self, paths: Sequence[int]) -> KVUsage:
        """The rows of the tree, and the state of each path."""
        rows, own = self._tree.usage(paths), super().usage(paths)
        return structs.replace(
            rows,
            bytes_held=self.bytes_held,
            own_bytes=own.own_bytes,
            bytes_copied=rows.bytes_copied + own.bytes_copied,
            allocations=rows.allocations + own.allocations,
            peak_bytes=max(own.peak_bytes, rows.peak_bytes),
        )
