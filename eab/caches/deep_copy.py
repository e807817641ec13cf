"""One cache per path, copied completely at a fork: nothing is shared.

Each cache grows by concatenation at every step, in every layer, as the DynamicCache of
transformers does. At a fork the first child takes over the parent's tensors, and each further
child gets a copy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from eab.caches.base import ForwardBatch
from eab.caches.ledger import check_limit
from eab.caches.per_path import PerPathCache
from eab.caches.shape import KVShape
from eab.events import KVUsage, PathRows


@dataclass(slots=True)
class _PathTensors:
    """K and V of one path, (G, C, D) per layer."""

    keys: list[Tensor]
    values: list[Tensor]
    length: int = 0

    @property
    def tensors(self) -> list[Tensor]:
        return [*self.keys, *self.values]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)


class DeepCopyCache(PerPathCache):
    def __init__(self, shape: KVShape, byte_limit: int) -> None:
        super().__init__(shape, byte_limit)
        empty = torch.empty(
            (shape.kv_heads, 0, shape.head_dim), dtype=shape.dtype, device=shape.device
        )
        self._paths = {0: _PathTensors([empty] * shape.layers, [empty] * shape.layers)}

    @property
    def bytes_held(self) -> int:
        """Bytes of the tensors of all paths (measured)."""
        return sum(own.nbytes for own in self._paths.values())

    def prepare(
        self,
        paths: Sequence[int],
        tokens: Sequence[Sequence[int]],
        logits_to_keep: Sequence[int] | None = None,
    ) -> ForwardBatch:
        check_limit(self.bytes_held + sum(map(len, tokens)) * self.shape.row_bytes, self.byte_limit)
        starts = [self._paths[path].length for path in paths]
        for path, new in zip(paths, tokens, strict=True):
            self._paths[path].length += len(new)
        return self._make_batch(paths, tokens, starts, logits_to_keep)

    def _update(self, path: int, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        own = self._paths[path]
        for tensors, new in ((own.keys, key), (own.values, value)):
            # If a pass failed and is repeated, its rows may be here already.
            old, before = tensors[layer], own.length - new.shape[1]
            kept = old[:, :before]
            tensors[layer] = torch.cat([kept, new], dim=1)
            self._ledger.replaced(old, tensors[layer], copied=kept.nbytes)
        return own.keys[layer], own.values[layer]

    def fork(self, path: int, children: Sequence[int]) -> None:
        check_limit(
            self.bytes_held + (len(children) - 1) * self._paths[path].nbytes, self.byte_limit
        )
        own = self._paths.pop(path)
        self._paths[children[0]] = own
        for child in children[1:]:
            self._paths[child] = _PathTensors(
                self._copy(own.keys), self._copy(own.values), own.length
            )

    def _copy(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        copies = [tensor.clone() for tensor in tensors]
        for copy in copies:
            self._ledger.allocated(copy, copied=copy.nbytes)
        return copies

    def release(self, path: int) -> None:
        self._ledger.freed(*self._paths.pop(path).tensors)

    def trim(self, path: int, length: int) -> None:
        """The remaining rows are copied, so that the memory of the others is
        freed.
        """
        own = self._paths[path]
        if length >= own.length:
            return
        own.length = length
        for tensors in (own.keys, own.values):
            for layer, old in enumerate(tensors):
                tensors[layer] = old[:, :length].clone()
                self._ledger.replaced(old, tensors[layer], copied=tensors[layer].nbytes)

    def usage(self, paths: Sequence[int]) -> KVUsage:
        """All rows are private."""
        return KVUsage(
            bytes_held=self.bytes_held,
            rows_shared=0,
            rows_private=sum(own.length for own in self._paths.values()),
            rows_spare=0,
            rows_independent=sum(self._paths[path].length for path in paths),
            paths=tuple(PathRows(path, 0, self._paths[path].length) for path in paths),
            **self._ledger.totals(),
        )
