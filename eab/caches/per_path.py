"""What the caches have in common that answer one path after another: every path has K and V of its
own to attend to.

All live paths still share one forward pass per step; only the attention goes path by path.
"""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from eab.caches.base import ForwardBatch, KVCache, wanted_lines
from eab.caches.ledger import Ledger
from eab.caches.shape import KVShape
from eab.events import Growth


class PathByPathCache(KVCache):
    """See KVCache. shape: what a row holds. byte_limit: MemoryLimitError instead of holding
    more.
    """

    def __init__(self, shape: KVShape, byte_limit: int) -> None:
        self.shape, self.byte_limit = shape, byte_limit
        self._ledger = Ledger()
        self._packed: list[tuple[int, int]] = []  # (path, its tokens in the pass being computed)

    @property
    @abstractmethod
    def bytes_held(self) -> int:
        """Bytes of all K and V tensors that stay until the next step, measured."""

    @abstractmethod
    def _see(self, path: int, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store the path's K and V of the pass, (G, T, D) -> all that the path sees, (G, C, D), the
        new rows last.
        """

    def reserve(self, rows: int, steps: int) -> Growth | None:
        """See KVCache.reserve: nothing is allocated ahead."""
        return None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """See KVCache.attend."""
        paths, counts = zip(*self._packed, strict=True)
        parts = zip(
            paths,
            query.split(counts, 2),
            key[0].split(counts, 1),
            value[0].split(counts, 1),
            strict=True,
        )
        return torch.cat(
            [causal(q, *self._see(path, layer, k, v), scale) for path, q, k, v in parts], dim=1
        )

    def _pass(
        self,
        paths: Sequence[int],
        texts: Sequence[Sequence[int]],
        starts: Sequence[int],
        wanted: Sequence[int] | None,
    ) -> ForwardBatch:
        """The tokens of each path, from position `starts[i]` on, as one pass."""
        self._packed = [(path, len(text)) for path, text in zip(paths, texts, strict=True)]
        device = self.shape.device
        positions = [
            start + index
            for text, start in zip(texts, starts, strict=True)
            for index in range(len(text))
        ]
        return ForwardBatch(
            cache=self,
            ids=torch.tensor([token for text in texts for token in text], device=device),
            positions=torch.tensor(positions, device=device),
            keep=torch.tensor(wanted_lines([len(text) for text in texts], wanted), device=device),
            growths=(),
        )


def causal(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """query (1, H, T, D) of the last T of C tokens, keys and values (G, C, D) of them all -> (1, T,
    H, D).
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
    folded = query.reshape(
        1, groups, heads // groups * new, size
    )  # or K and V would be expanded per query head
    out = functional.scaled_dot_product_attention(
        folded, keys[None], values[None], attn_mask=mask, scale=scale
    )
    return out.reshape(1, heads, new, size).transpose(1, 2)
