"""The common part of caches that store and attend path by path.

All live paths still share one forward pass per step; only the attention is computed separately for
each path, over its own K and V.
"""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from eab.caches.base import ForwardBatch, KVCache, logits_indices
from eab.caches.ledger import Ledger
from eab.caches.shape import KVShape
from eab.caches.transfer import to_device
from eab.events import Growth


class PerPathCache(KVCache):
    """See KVCache."""

    def __init__(self, shape: KVShape, byte_limit: int) -> None:
        self.shape, self.byte_limit = shape, byte_limit
        self._ledger = Ledger()
        # (path, number of its tokens) of the prepared batch
        self._batch: list[tuple[int, int]] = []

    @property
    @abstractmethod
    def bytes_held(self) -> int:
        """Bytes of all K and V tensors that are kept until the next step (measured)."""

    @abstractmethod
    def _update(self, path: int, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store new K and V of a path, (G, T, D) each.

        Returns:
            All K and V that the path sees, (G, C, D) each, the new rows last.
        """

    def reserve(self, rows: int, steps: int | None) -> Growth | None:
        """Nothing is allocated ahead."""
        return None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        paths, counts = zip(*self._batch, strict=True)
        parts = zip(
            paths,
            query.split(counts, 2),
            key[0].split(counts, 1),
            value[0].split(counts, 1),
            strict=True,
        )
        return torch.cat(
            [
                causal_attention(q, *self._update(path, layer, k, v), scale)
                for path, q, k, v in parts
            ],
            dim=1,
        )

    def _make_batch(
        self,
        paths: Sequence[int],
        texts: Sequence[Sequence[int]],
        starts: Sequence[int],
        logits_to_keep: Sequence[int] | None,
    ) -> ForwardBatch:
        """A batch of the texts of these paths, each from position `starts[i]` on."""
        self._batch = [(path, len(text)) for path, text in zip(paths, texts, strict=True)]
        positions = [
            start + index
            for text, start in zip(texts, starts, strict=True)
            for index in range(len(text))
        ]
        indices = logits_indices([len(text) for text in texts], logits_to_keep)
        ids = [token for text in texts for token in text]
        batch_ids, at, kept = to_device(self.shape.device, ids, positions, indices)
        return ForwardBatch(self, batch_ids, at, kept, growths=())


def causal_attention(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Causal attention of the last T of C tokens.

    Args:
        query: (1, H, T, D).
        keys: Of all C tokens, (G, C, D).
        values: Of all C tokens, (G, C, D).

    Returns:
        The attention output, (1, T, H, D).
    """
    _, heads, new, size = query.shape
    groups, length, _ = keys.shape
    if new == length > 1:
        gqa = heads > groups
        out = functional.scaled_dot_product_attention(
            query, keys[None], values[None], is_causal=True, scale=scale, enable_gqa=gqa
        )
        return out.transpose(1, 2)
    mask = None  # a single new token sees everything
    if new > 1:
        seen = torch.ones(new, length, dtype=torch.bool, device=query.device).tril(length - new)
        mask = seen.repeat(heads // groups, 1)
    # Query heads of a group become query rows; otherwise K and V would be expanded per query head.
    folded = query.reshape(1, groups, heads // groups * new, size)
    out = functional.scaled_dot_product_attention(
        folded, keys[None], values[None], attn_mask=mask, scale=scale
    )
    return out.reshape(1, heads, new, size).transpose(1, 2)
