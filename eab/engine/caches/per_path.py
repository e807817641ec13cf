"""The common base of caches that store and attend path by path.

All live paths still share one forward pass per step; only the attention is computed separately for
each path, over its own K and V.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from eab.engine.caches.attention import attention_mask, by_group, masked_attention
from eab.engine.caches.base import ForwardBatch, KVCache, batch_of
from eab.engine.caches.ledger import Ledger
from eab.engine.caches.row_table import ranges
from eab.engine.caches.rows_read import ListedRows
from eab.engine.caches.shape import ORDINARY, KVShape, LayerAttention, Reach, to_device


@dataclass(slots=True, eq=False)
class KVTensors:
    """K and V of consecutive tokens, (G, C, D) for each layer that has its own."""

    keys: list[Tensor]
    values: list[Tensor]
    rows: int = 0  # number of tokens

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors."""
        return [*self.keys, *self.values]


class PerPathCache(KVCache):
    """A cache that stores and attends path by path."""

    def __init__(self, shape: KVShape, byte_limit: int) -> None:
        self.shape, self.byte_limit = shape, byte_limit
        self._ledger = Ledger()
        self._slots = shape.slots
        # The same compiled attention as in the tree, in the same order: the texts are the same
        self._is_compiled = [shape.mask_kind(layer).is_compiled for layer in range(shape.layers)]
        self._listed: dict[tuple[int, int, Reach], ListedRows] = {}  # of the prepared batch
        # (path, number of its tokens) of the prepared batch
        self._batch: list[tuple[int, int]] = []

    def _append(self, own: KVTensors, slot: int, key: Tensor, value: Tensor) -> None:
        """Store new K and V of a layer, (G, T, D) each, as the last of `own.rows` rows."""
        for tensors, new in ((own.keys, key), (own.values, value)):
            # If a pass failed and is repeated, its rows may be here already.
            old, before = tensors[slot], own.rows - new.shape[1]
            kept = old[:, :before]
            tensors[slot] = torch.cat([kept, new], dim=1)
            self._ledger.replaced(old, tensors[slot], copied=kept.nbytes)

    def _truncate(self, own: KVTensors, rows: int) -> None:
        """Keep copies of the first rows, so that the memory of the others is freed."""
        own.rows = rows
        for tensors in (own.keys, own.values):
            for slot, old in enumerate(tensors):
                tensors[slot] = old[:, :rows].clone()
                self._ledger.replaced(old, tensors[slot], copied=tensors[slot].nbytes)

    def _joined(self, parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """K and V of these parts, in temporary tensors, which are counted."""
        keys, values = (torch.cat(each, dim=1) for each in zip(*parts, strict=True))
        for temporary in (keys, values):
            self._ledger.allocated(temporary, copied=temporary.nbytes)
        self._ledger.freed(keys, values)  # after the attention of the path
        return keys, values

    @property
    @abstractmethod
    def bytes_held(self) -> int:
        """Bytes of all K and V tensors that are kept until the next step (measured)."""

    @abstractmethod
    def _store(self, path: int, slot: int, key: Tensor, value: Tensor) -> None:
        """Store new K and V of a path, (G, T, D) each."""

    @abstractmethod
    def _seen(self, path: int, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """K and V of all rows that a path sees, (G, C, D) each; the given new ones are last."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        paths, counts = zip(*self._batch, strict=True)
        queries, new_keys = query.split(counts, 2), key[0].split(counts, 1)
        parts = zip(paths, queries, new_keys, value[0].split(counts, 1), strict=True)
        kind, slot = self.shape.layer(layer), self._slots[layer]
        outs = []
        for path, q, k, v in parts:
            if kind.source < 0:
                self._store(path, slot, k, v)
            keys, values = self._seen(path, slot, k, v)
            if self._is_compiled[layer]:
                rows = self._rows_of(keys.shape[1], q.shape[2], kind.reach)
                own = rows.attend(q[0], keys.contiguous(), values.contiguous(), scale, kind)
                outs.append(own[None])
            else:
                outs.append(causal_attention(q, keys, values, scale, kind))
        return torch.cat(outs, dim=1)

    def _rows_of(self, length: int, new: int, reach: Reach) -> ListedRows:
        """The rows that the last `new` of `length` tokens see."""
        key = (length, new, reach)
        if key not in self._listed:
            positions = np.arange(length - new, length)
            self._listed[key] = ListedRows(ranges(reach.first(positions), positions + 1))
        return self._listed[key]

    def _make_batch(
        self,
        paths: Sequence[int],
        texts: Sequence[Sequence[int]],
        starts: Sequence[int],
        logits_to_keep: Sequence[int] | None,
    ) -> ForwardBatch:
        """A batch of the texts of these paths, each from position `starts[i]` on."""
        self._listed = {}
        self._batch = [(path, len(text)) for path, text in zip(paths, texts, strict=True)]
        return batch_of(self, self.shape.device, texts, starts, logits_to_keep)


def causal_attention(
    query: Tensor, keys: Tensor, values: Tensor, scale: float, layer: LayerAttention = ORDINARY
) -> Tensor:
    """Causal attention of the last T of C tokens: query (1, H, T, D), keys and values (G, C, D) of
    all tokens, output (1, T, H, D).
    """
    _, heads, new, _ = query.shape
    groups, length, _ = keys.shape
    limited = not layer.reach.sees_all_up_to(length - 1)
    if new == length > 1 and not limited and layer.is_fused:
        gqa = heads > groups
        out = functional.scaled_dot_product_attention(
            query, keys[None], values[None], is_causal=True, scale=scale, enable_gqa=gqa
        )
        return out.transpose(1, 2)
    first = int(layer.reach.first(np.array([length - new]))[0]) if limited else 0
    mask = None  # a single new token sees everything from `first` on
    if new > 1:
        [shown] = to_device(query.device, layer.reach.causal(length, new)[:, first:])
        mask = attention_mask(shown, query.dtype)
    asking = by_group(query[0], groups)
    out = masked_attention(asking, keys[:, first:], values[:, first:], mask, scale, layer)
    return out.flatten(0, 1).transpose(0, 1)[None]
