"""How the tensors of the tree cache grow and shrink. test_all_caches.py compares its attention with
that without a cache, and its rows and bytes with what the tensors hold.
"""

from collections.abc import Sequence

import pytest
import torch

from eab.engine.caches.shape import KVShape
from eab.engine.caches.tree import TreeCache
from eab.errors import MemoryLimitError

ROOM = 2**30
SHAPE = KVShape(2, 2, 4, torch.float32, torch.device("cpu"))


def tensors(cache: TreeCache) -> list[torch.Tensor]:
    return [*cache._keys, *cache._values]


def fill(cache: TreeCache, paths: Sequence[int], count: int) -> list[int]:
    """Prepare `count` new tokens per path, and return their rows."""
    cache.prepare(paths, [[1] * count for _ in paths])
    return cache._rows.tolist()


@pytest.mark.parametrize("r", [1, 2, 7])
def test_the_tensors_grow_by_the_rows_of_r_steps_and_keep_their_content(r):
    cache = TreeCache(SHAPE, r, ROOM)
    assert cache.prepare([0], [[1, 2, 3]]).growths[0].rows == max(3, r)
    for tensor in tensors(cache):
        tensor.copy_(torch.randn_like(tensor))
    before = [tensor.clone() for tensor in tensors(cache)]
    bytes_before, rows = cache.bytes_held, cache.rows
    cache.fork(0, [1, 2])
    growth = cache.prepare([1, 2], [[5] * 20, [6] * 20]).growths[0]
    assert growth.rows == cache.rows == max(43, rows + 2 * r)
    assert (growth.rows_copied, growth.bytes_copied) == (rows, bytes_before)
    assert growth.peak_bytes == cache.bytes_held + bytes_before // 4
    for old, new in zip(before, tensors(cache), strict=True):
        assert torch.equal(new[:, :rows], old)
        assert not new[:, rows:].any()


@pytest.mark.parametrize(("r", "growths"), [(1, 12), (5, 3), (12, 1)])
def test_r_counts_decode_steps_of_all_paths(r, growths):
    cache = TreeCache(SHAPE, r, ROOM)
    cache.reserve(1, 12)
    fill(cache, [0], 1)
    cache.fork(0, [1, 2, 3])
    assert sum(cache.prepare([1, 2, 3], [[4]] * 3).growths != () for _ in range(12)) == growths


def test_the_last_growth_takes_free_rows_into_account():
    cache = TreeCache(SHAPE, 5, ROOM)
    fill(cache, [0], 1)
    cache.fork(0, [1, 2, 3])
    for steps_left in (2, 1):
        cache.reserve(0, steps_left)
        fill(cache, [1, 2, 3], 1)
    assert cache.rows == 1 + 3 + 3


def test_the_tensors_shrink_when_more_than_half_of_them_is_free(monkeypatch):
    monkeypatch.setattr("eab.engine.caches.growth.LEAST_GIVEN_BACK", 0)
    cache = TreeCache(SHAPE, 1, ROOM)
    fill(cache, [0], 2)
    cache.fork(0, [1, 2, 3, 4])
    fill(cache, [1, 2, 3, 4], 4)
    assert cache.rows == 18
    numbers = torch.arange(18.0).view(1, -1, 1)
    for tensor in tensors(cache):
        tensor.copy_(numbers.expand_as(tensor))
    cache.release(1)
    cache.reserve(0, steps=0)  # no more rows are needed
    assert not cache.prepare([2, 3, 4], [[1]] * 3).growths, "17 rows are in use"
    cache.reserve(0, steps=None)
    cache.release(2)
    cache.release(4)
    [growth] = cache.prepare([3], [[1]]).growths  # 7 rows, the new one, and one for the next step
    assert (growth.rows, growth.rows_copied, growth.r) == (9, 7, 0)
    assert cache._rows.tolist() == [7]
    for tensor in tensors(cache):
        assert tensor[0, :, 0].tolist() == [0, 1, 10, 11, 12, 13, 3, 0, 0], (
            "in the order of the text"
        )
    assert cache.usage([3]).bytes_held == 9 * SHAPE.row_bytes


@pytest.mark.parametrize("r", ["auto", 40])
def test_near_the_limit_the_tensors_grow_only_up_to_it(r):
    cache = TreeCache(SHAPE, r, byte_limit=107 * SHAPE.row_bytes)
    cache.reserve(0, 50)
    fill(cache, [0], 90)
    cache.fork(0, [1, 2])
    for _ in range(8):
        fill(cache, [1, 2], 1)
    assert cache.rows == 107
    with pytest.raises(MemoryLimitError, match="a smaller r"):
        fill(cache, [1, 2], 1)
    assert cache.rows == 107


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
