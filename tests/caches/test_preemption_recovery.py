"""Freed K and V are computed again, each in the row where they were."""

import pytest
import torch

from eab.caches.tree import TreeCache

LIMIT = 2**30


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("limit", [3, 512])
def test_recovered_rows_are_the_same_and_give_the_same_logits(twins, family, padded, limit):
    model = twins(family).ours
    logits = []
    for freed in (False, True):
        cache = TreeCache(model.kv_shape, 4, LIMIT, padded)
        with torch.inference_mode():
            model.forward([cache.prepare([0], [[5, 9, 33, 2]])])
            cache.fork(0, [1, 2, 3])
            model.forward([cache.prepare([1, 2, 3], [[7], [8], [9]])])
            cache.release(2)  # leaves a hole
            cache.fork(3, [4, 5])
            model.forward([cache.prepare([1, 4, 5], [[3, 4], [6], [6]])])
            texts = {
                1: [5, 9, 33, 2, 7, 3, 4, 11],
                4: [5, 9, 33, 2, 9, 6, 12],
                5: [5, 9, 33, 2, 9, 6, 13],
            }
            before = cache.usage([1, 4, 5])
            if freed:
                recovery = cache.free(texts)
                assert cache.bytes_held == 0
                assert recovery.rows_left == 10, "shared rows once, holes never"
                while recovery.rows_left:
                    batch = recovery.prepare(limit)
                    assert len(batch.ids) <= limit
                    model.forward([batch])
            assert cache.usage([1, 4, 5]) == before
            logits.append(model.forward([cache.prepare([1, 4, 5], [[11], [12], [13]])]))
    assert torch.allclose(*logits, rtol=0, atol=1e-9)
