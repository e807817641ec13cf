"""One cache per path, copied completely at a fork: nothing is shared.

Each cache grows by concatenation at every step, in every layer, as the DynamicCache of transformers
does. At a fork the first child takes over the parent's tensors, and each further child gets a copy.
"""

from collections.abc import Sequence

from torch import Tensor

from eab.caches.base import ForwardBatch
from eab.caches.ledger import check_limit
from eab.caches.per_path import KVTensors, PerPathCache
from eab.caches.shape import KVShape
from eab.events import KVUsage, PathRows


class DeepCopyCache(PerPathCache):
    """One set of tensors per path."""

    def __init__(self, shape: KVShape, byte_limit: int) -> None:
        super().__init__(shape, byte_limit)
        self._paths = {0: KVTensors(*shape.empty_tensors())}

    @property
    def bytes_held(self) -> int:
        """Bytes of the tensors of all paths (measured)."""
        return sum(map(_bytes_of, self._paths.values()))

    def prepare(
        self,
        paths: Sequence[int],
        tokens: Sequence[Sequence[int]],
        logits_to_keep: Sequence[int] | None = None,
    ) -> ForwardBatch:
        check_limit(self.bytes_held + sum(map(len, tokens)) * self.shape.row_bytes, self.byte_limit)
        starts = [self._paths[path].rows for path in paths]
        for path, new in zip(paths, tokens, strict=True):
            self._paths[path].rows += len(new)
        return self._make_batch(paths, tokens, starts, logits_to_keep)

    def _store(self, path: int, slot: int, key: Tensor, value: Tensor) -> None:
        self._append(self._paths[path], slot, key, value)

    def _seen(self, path: int, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        own = self._paths[path]
        return own.keys[slot], own.values[slot]

    def fork(self, path: int, children: Sequence[int]) -> None:
        copied = (len(children) - 1) * _bytes_of(self._paths[path])
        check_limit(self.bytes_held + copied, self.byte_limit)
        own = self._paths.pop(path)
        self._paths[children[0]] = own
        for child in children[1:]:
            self._paths[child] = KVTensors(self._copy(own.keys), self._copy(own.values), own.rows)

    def _copy(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        copies = [tensor.clone() for tensor in tensors]
        for copy in copies:
            self._ledger.allocated(copy, copied=copy.nbytes)
        return copies

    def release(self, path: int) -> None:
        self._ledger.freed(*self._paths.pop(path).tensors)

    def trim(self, path: int, length: int) -> None:
        if length < self._paths[path].rows:
            self._truncate(self._paths[path], length)

    def usage(self, paths: Sequence[int]) -> KVUsage:
        """All rows are private."""
        return KVUsage(
            bytes_held=self.bytes_held,
            rows_shared=0,
            rows_private=sum(own.rows for own in self._paths.values()),
            rows_spare=0,
            rows_independent=sum(self._paths[path].rows for path in paths),
            paths=tuple(PathRows(path, 0, self._paths[path].rows) for path in paths),
            **self._ledger.totals(),
        )


def _bytes_of(own: KVTensors) -> int:
    return sum(tensor.nbytes for tensor in own.tensors)
