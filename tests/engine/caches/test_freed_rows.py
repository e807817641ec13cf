"""Freed rows are computed again where they were."""

import pytest
import torch

from eab.engine.caches.tree import TreeCache

LIMIT = 2**30


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("limit", [3, 512])
def test_freed_rows_are_computed_again_and_give_the_same_logits(twins, family, padded, limit):
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
            before = cache.usage([1, 4, 5])
            if freed:
                cache.free()
                assert cache.bytes_held == 0
                assert cache.freed_tokens == 10, "shared rows once, holes never"
                while cache.freed_tokens:
                    batch = cache.prepare_freed(limit)
                    assert len(batch.ids) <= limit
                    model.forward([batch])
            assert cache.usage([1, 4, 5]) == before
            logits.append(model.forward([cache.prepare([1, 4, 5], [[11], [12], [13]])]))
    assert torch.allclose(*logits, rtol=0, atol=1e-9)
