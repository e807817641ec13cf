"""Every row is a tensor of its own, in the lists of all paths that see it."""

from collections import Counter

import torch

from eab.engine.caches.base import KVCache, batch_of
from eab.engine.caches.ledger import Ledger
from eab.engine.caches.per_path import causal_attention
from eab.run.events import KVUsage, PathRows


class MyCache(KVCache):
    def __init__(self, shape, byte_limit):
        self._shape = shape
        self._size = (shape.layers, 2, shape.kv_heads, shape.head_dim)
        self._rows = {0: []}
        self._batch = []

    def prepare(self, paths, tokens, logits_to_keep=None):
        starts = [len(self._rows[path]) for path in paths]
        self._batch = [(path, len(new)) for path, new in zip(paths, tokens, strict=True)]
        for path, count in self._batch:
            self._rows[path] += [
                torch.empty(self._size, dtype=self._shape.dtype) for _ in range(count)
            ]
        return batch_of(self, self._shape.device, tokens, starts, logits_to_keep)

    def attend(self, layer, query, key, value, scale):
        counts, outputs = [count for _, count in self._batch], []
        parts = [numbers.split(counts, dim=2) for numbers in (query, key, value)]
        for (path, count), q, k, v in zip(self._batch, *parts, strict=True):
            rows = self._rows[path]
            for number, row in enumerate(rows[-count:]):
                row[layer, 0], row[layer, 1] = k[0, :, number], v[0, :, number]
            keys, values = torch.stack([row[layer] for row in rows], dim=2)
            outputs.append(causal_attention(q, keys, values, scale))
        return torch.cat(outputs, dim=1)

    def fork(self, path, children):
        rows = self._rows.pop(path)
        self._rows |= {child: list(rows) for child in children}

    def release(self, path):
        del self._rows[path]

    def trim(self, path, length):
        del self._rows[path][length:]

    def usage(self, paths):
        seen = Counter(id(row) for rows in self._rows.values() for row in rows)
        shared = sum(count > 1 for count in seen.values())
        return KVUsage(
            bytes_held=len(seen) * self._shape.row_bytes,
            rows_shared=shared,
            rows_private=len(seen) - shared,
            rows_spare=0,
            rows_independent=seen.total(),
            paths=tuple(PathRows(path, 0, 0) for path in paths),
            **Ledger().totals(),
        )
