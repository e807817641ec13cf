"""The memory of a model that no cache of this project can serve: transformers' own, path by path.

Nothing is shared. Paths with texts of equal length are rows of one memory object, so they go
through the model together; the children of a fork get copies of their parent's row in the next
pass. With draft tokens, a memory that cannot be cropped is copied before the pass; after a
rejection the copy replaces it, and the accepted tokens are read again.

A hybrid model keeps KV rows of its attention layers in a tree cache, shared by all paths that
descend from a token, and a state of constant size per path for its other layers. The states are
handled as above. Paths that go through the model together have the same row in the memory object as
in the batch of the tree.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from msgspec import structs
from torch import Tensor

from eab.config import AllocationStep
from eab.engine.caches import own_memory
from eab.engine.caches.base import Attends, ForwardBatch, KVCache, batch_of
from eab.engine.caches.ledger import Ledger, check_limit
from eab.engine.caches.own_memory import BatchAxes
from eab.engine.caches.shape import KVShape
from eab.engine.caches.tree import TreeCache
from eab.run.events import Growth, KVUsage, PathRows

RowsFor = Callable[[Tensor], ForwardBatch]  # from the tokens of a pass, (B, T)


class ReadsTexts(Protocol):
    """A model with a memory of its own."""

    @property
    def axes(self) -> BatchAxes:
        """The axes of the memory along which the texts are stored."""
        ...

    @property
    def together(self) -> bool:
        """Whether it can read several texts in one pass."""
        ...

    def read(
        self, memory: Any, ids: Tensor, start: int, keep: int, rows: RowsFor | None = None
    ) -> tuple[Tensor, Any]:
        """Read the next tokens, (B, T), of texts that have `start` tokens so far. The memory is
        None before the first token. It may be changed in place.

        Args:
            rows: If K and V are not in the memory, returns for each pass the batch whose cache
                serves the attention of the next of these tokens.

        Returns:
            The logits after the last `keep` tokens, (B, keep, V), and the memory after all of
            them; None if the model keeps none.
        """
        ...


@dataclass(slots=True, eq=False)
class Held:
    """A memory object. Each row has read a different text of the same length."""

    memory: Any = None
    length: int = 0
    rows: int = 1
    bytes: int = 0

    @property
    def bytes_of_row(self) -> int:
        """Bytes per text."""
        return self.bytes // self.rows


@dataclass(frozen=True, slots=True)
class Place:
    """Where the memory of a path is. The children of a fork have the same place at first."""

    held: Held
    row: int = 0


class OwnCache(KVCache):
    """The memories of the paths of one run.

    Args:
        keeps: Whether memory is kept between passes; else each pass reads the whole texts again.
    """

    def __init__(self, shape: KVShape, byte_limit: int, keeps: bool = True) -> None:
        self.shape, self.byte_limit, self._keeps = shape, byte_limit, keeps
        self._row_bytes = shape.row_bytes  # of what this cache holds
        self._texts: dict[int, list[int]] = {0: []}
        self._places = {0: Place(Held())}
        self._before: dict[int, Place] = {}  # before the latest pass read draft tokens
        self._asked: list[tuple[int, int]] = []  # paths of the prepared batch, logits to keep
        self._logits: dict[int, Tensor] = {}  # of the computed part of the prepared batch
        self._axes: BatchAxes = {}
        self._ledger = Ledger()

    @property
    def bytes_held(self) -> int:
        """Bytes of the tensors of all memories (measured; computed without a model)."""
        return sum(held.bytes for held in self._all_held())

    def _all_held(self) -> Iterable[Held]:
        places = (*self._places.values(), *self._before.values())
        return dict.fromkeys(place.held for place in places)

    def prepare(
        self,
        paths: Sequence[int],
        tokens: Sequence[Sequence[int]],
        logits_to_keep: Sequence[int] | None = None,
    ) -> ForwardBatch:
        """The batch holds all tokens that the memories of the paths have not read."""
        keep = list(logits_to_keep or [1] * len(paths))
        self._before, self._logits = {}, {}
        drafting = [path for path, count in zip(paths, keep, strict=True) if count > 1]
        self._check_room(paths, tokens, drafting)
        self._texts |= {
            path: [*self._texts[path], *new] for path, new in zip(paths, tokens, strict=True)
        }
        self._asked = [*zip(paths, keep, strict=True)]
        starts = [self._places[path].held.length for path in paths]
        unread = [*map(self._unread, paths)]
        if self.shape.device.type == "meta":
            self._pretend_to_read(paths)
        return batch_of(self, self.shape.device, unread, starts, keep)

    def _unread(self, path: int) -> list[int]:
        """The tokens that the memory of a path must read in this pass."""
        return self._texts[path][self._places[path].held.length :]

    def _check_room(
        self, paths: Sequence[int], tokens: Sequence[Sequence[int]], drafting: Sequence[int]
    ) -> None:
        row, state = self._row_bytes, self.shape.state_bytes
        if not self._keeps:
            lengths = [len(self._texts[path]) for path in paths] + [*map(len, tokens)]
            needed = sum(lengths) * row + len(paths) * state
            check_limit(needed, self.byte_limit, what="one forward pass over all texts needs")
            return
        places = [*self._places.values(), *(self._places[path] for path in drafting)]
        held = sum(place.held.bytes_of_row or state for place in places)
        check_limit(held + sum(map(len, tokens)) * row, self.byte_limit)

    def _pretend_to_read(self, paths: Sequence[int]) -> None:
        """Without a model, note what the memories would hold after a pass."""
        for path in paths:
            length = len(self._texts[path])
            size = self.shape.state_bytes + length * self._row_bytes if self._keeps else 0
            self._places[path] = Place(Held(None, length if self._keeps else 0, 1, size))
        self._ledger.peak_bytes = max(self._ledger.peak_bytes, self.bytes_held)

    def read(self, model: ReadsTexts) -> Tensor:
        """Let the model read the prepared batch; returns the logits to keep, (K, V).

        If this fails, it can be repeated: what was already computed is not read again.
        """
        self._axes = model.axes
        alike: dict[tuple[int, int, int], list[int]] = {}
        for path, _ in self._asked:
            if path not in self._logits:
                length = self._places[path].held.length
                alone = 0 if model.together else path
                alike.setdefault((length, len(self._unread(path)), alone), []).append(path)
        for paths in alike.values():
            self._read_together(model, paths)
        return torch.cat([self._logits[path][-keep:] for path, keep in self._asked])

    def _read_together(self, model: ReadsTexts, paths: Sequence[int]) -> None:
        """Read the unread tokens of these paths: equally many, after texts of equal length."""
        held, asked = self._gathered(paths), dict(self._asked)
        keep = max(asked[path] for path in paths)
        if keep > 1:
            self._remember(paths, held)
        unread = [*map(self._unread, paths)]
        ids = torch.tensor(unread, dtype=torch.int64, device=self.shape.device)
        before = own_memory.tensors_of(held.memory)
        try:
            rows = self._rows_for(paths)
            logits, memory = model.read(held.memory, ids, held.length, keep, rows)
        except BaseException:  # the memory may have read a part, so start over
            self._forget(paths)
            raise
        self._logits |= zip(paths, logits, strict=True)
        if memory is None or not self._keeps:
            self._places |= {path: Place(Held()) for path in paths}
            self._note_peak(own_memory.bytes_of(memory))
            return
        held.memory, held.length = own_memory.compact(memory), held.length + ids.shape[1]
        held.bytes = own_memory.bytes_of(held.memory)
        made = own_memory.tensors_of(held.memory)
        new = [name for name, tensor in made.items() if before.get(name) is not tensor]
        self._ledger.allocations += len(new)
        self._ledger.bytes_copied += sum(
            min(before[name].nbytes, made[name].nbytes) for name in new if name in before
        )
        self._note_peak()

    def _rows_for(self, paths: Sequence[int]) -> RowsFor | None:
        """Where K and V of these paths are, if not in their memory (see `ReadsTexts.read`)."""
        return None

    def _forget(self, paths: Sequence[int]) -> None:
        """Drop the memory of these paths."""
        self._places |= {path: Place(Held()) for path in paths}

    def _gathered(self, paths: Sequence[int]) -> Held:
        """One memory with a row for each path, in this order."""
        places = [self._places[path] for path in paths]
        rows: dict[Held, list[int]] = {}
        for place in places:
            rows.setdefault(place.held, []).append(place.row)
        first = places[0].held
        alone = sum(place.held is first for place in self._places.values()) == len(paths)
        if len(rows) == 1 and alone and rows[first] == [*range(first.rows)]:
            return first
        held = Held(None, first.length, len(paths))
        if first.memory is not None:
            parts = [own_memory.rows_of(old.memory, of, self._axes) for old, of in rows.items()]
            memory = own_memory.joined(parts, self._axes)
            if len(parts) > 1:
                helds = [*rows]
                order = sorted(range(len(paths)), key=lambda at: helds.index(places[at].held))
                memory = own_memory.rows_of(memory, _inverse(order), self._axes)
            self._note_copy(held, memory)
        self._places |= {path: Place(held, row) for row, path in enumerate(paths)}
        return held

    def _remember(self, paths: Sequence[int], held: Held) -> None:
        """Keep a copy of a memory that cannot be cropped, before it reads draft tokens."""
        if held.memory is None or own_memory.can_be_cropped(held.memory):
            return
        copy = Held(None, held.length, held.rows)
        self._note_copy(copy, own_memory.rows_of(held.memory, range(held.rows), self._axes))
        self._before |= {path: Place(copy, row) for row, path in enumerate(paths)}

    def _note_copy(self, held: Held, memory: Any) -> None:
        """Store a memory that was copied from others, and count it."""
        held.memory, held.bytes = memory, own_memory.bytes_of(memory)
        self._ledger.allocations += len(own_memory.tensors_of(memory))
        self._ledger.bytes_copied += held.bytes
        self._note_peak(held.bytes)

    def _note_peak(self, more: int = 0) -> None:
        self._ledger.peak_bytes = max(self._ledger.peak_bytes, self.bytes_held + more)

    def fork(self, path: int, children: Sequence[int]) -> None:
        """The children share the parent's row until they go through the model."""
        text, place = self._texts.pop(path), self._places.pop(path)
        self._before.pop(path, None)
        self._texts |= {child: text for child in children}  # never changed in place
        self._places |= dict.fromkeys(children, place)

    def release(self, path: int) -> None:
        """Its row is dropped when the others are next copied."""
        del self._texts[path], self._places[path]
        self._before.pop(path, None)

    def trim(self, path: int, length: int) -> None:
        """Not every memory can drop rejected tokens; see the module docstring."""
        self._texts[path] = self._texts[path][:length]
        place, before = self._places[path], self._before.pop(path, None)
        held, shorter = place.held, Held()
        if held.length <= length:
            return
        if before is not None and before.held.length <= length:
            self._places[path] = before
            return
        if own_memory.can_be_cropped(held.memory):
            memory = own_memory.rows_of(held.memory, [place.row], self._axes)
            shorter.length = length
            self._note_copy(shorter, own_memory.cropped(memory, held.length - length))
        self._places[path] = Place(shorter)

    def usage(self, paths: Sequence[int]) -> KVUsage:
        """All memory is private."""
        return KVUsage(
            bytes_held=self.bytes_held,
            rows_shared=0,
            rows_private=0,
            rows_spare=0,
            rows_independent=sum(len(self._texts[path]) for path in paths),
            paths=tuple(PathRows(path, 0, 0) for path in paths),
            own_bytes=tuple(self._places[path].held.bytes_of_row for path in paths),
            **self._ledger.totals(),
        )


def _inverse(order: Sequence[int]) -> list[int]:
    """The inverse of a permutation of 0, 1, 2 ..."""
    return sorted(range(len(order)), key=order.__getitem__)


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
