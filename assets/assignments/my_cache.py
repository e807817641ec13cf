"""A KV cache for a tree of texts.

Check it with: eab check cache my_cache.py
"""

import torch

from eab.engine.caches.base import KVCache, batch_of
from eab.engine.caches.ledger import Ledger
from eab.engine.caches.per_path import causal_attention
from eab.run.events import KVUsage, PathRows


class MyCache(KVCache):
    """A row holds K and V of one token in all layers: two tensors of shape.kv_heads x
    shape.head_dim numbers per layer. Path 0 exists from the start, without rows.
    """

    def __init__(self, shape, byte_limit):
        self._shape = shape
        self._batch = []  # (path, number of new tokens) of the prepared batch

    def prepare(self, paths, tokens, logits_to_keep=None):
        """Make room for the new tokens of each path; `attend` fills it."""
        self._batch = [(path, len(new)) for path, new in zip(paths, tokens, strict=True)]
        starts = [self._length(path) for path in paths]  # before the new tokens
        return batch_of(self, self._shape.device, tokens, starts, logits_to_keep)

    def _length(self, path):
        """The number of tokens of a path."""
        raise NotImplementedError

    def attend(self, layer, query, key, value, scale):
        """Store K and V of the batch in this layer, and return its attention."""
        counts, outputs = [count for _, count in self._batch], []
        parts = [numbers.split(counts, dim=2) for numbers in (query, key, value)]
        for (path, _), q, k, v in zip(self._batch, *parts, strict=True):
            keys, values = self._store(path, layer, k[0], v[0])
            outputs.append(causal_attention(q, keys, values, scale))
        return torch.cat(outputs, dim=1)

    def _store(self, path, layer, key, value):
        """Store K and V of the new tokens of a path, (kv_heads, tokens, head_dim) each; return
        those of all its tokens.
        """
        raise NotImplementedError

    def fork(self, path, children):
        """End the path; each child sees all of its rows."""
        raise NotImplementedError

    def release(self, path):
        """End the path, and free what no other path sees."""
        raise NotImplementedError

    def trim(self, path, length):
        """Remove the tokens of the path from position `length` on."""
        raise NotImplementedError

    def usage(self, paths):
        """What the cache holds. A row that two or more paths see is shared."""
        return KVUsage(
            bytes_held=0,
            rows_shared=0,
            rows_private=0,
            rows_spare=0,
            rows_independent=0,  # the sum of the lengths of all paths
            paths=tuple(PathRows(path, 0, 0) for path in paths),
            **Ledger().totals(),
        )
