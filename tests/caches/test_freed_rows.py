"""What was freed is computed again: rows where they were, texts side by side."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from eab.caches.own import OwnCache
from eab.caches.shape import KVShape, OwnMemory
from eab.caches.tree import TreeCache

LIMIT = 2**30
TEXTS = st.lists(st.lists(st.integers(0, 2), max_size=9), min_size=1, max_size=6)


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


class Remembers:
    """A model whose memory is the text itself."""

    axes, together = {".0": 0}, True

    def __init__(self) -> None:
        self.texts: list[list[int]] = []  # that it has read in the latest pass

    def read(
        self, memory: Any, ids: Tensor, start: int, keep: int, rows: Any = None
    ) -> tuple[Tensor, Any]:
        text = ids if memory is None else torch.cat([memory[0], ids], dim=1)
        assert text.shape[1] == start + ids.shape[1]
        self.texts += text.tolist()
        return torch.zeros(len(ids), keep, 3), [text]


@given(TEXTS.filter(any), st.integers(1, 12), st.booleans(), st.booleans())
def test_every_common_beginning_is_read_again_once(texts, limit, whole, twice):
    own = OwnMemory(row_bytes=8, state_bytes=0, whole_prompts=whole)
    shape = KVShape(1, 1, 1, torch.float32, torch.device("cpu"), own=own)
    model, cache, paths = Remembers(), OwnCache(shape, LIMIT), range(1, len(texts) + 1)
    cache.fork(0, paths)
    some = [path for path, text in zip(paths, texts, strict=True) if text]
    cache.prepare(some, [texts[path - 1] for path in some])
    cache.read(model)
    before = cache.usage(paths)

    cache.free()
    if twice and cache.freed_tokens:
        cache.prepare_freed(limit)
        cache.read(model)
        cache.free()
    assert cache.bytes_held == 0
    tokens, expected = 0, cache.freed_tokens
    while cache.freed_tokens:
        tokens += len(cache.prepare_freed(limit).ids)
        cache.read(model)
    assert tokens == expected == len({tuple(text[:end]) for text in texts for end in _ends(text)})
    after = cache.usage(paths)
    assert (after.bytes_copied, after.allocations) == (before.bytes_copied, before.allocations)

    model.texts = []
    cache.prepare(paths, [[3]] * len(paths))
    cache.read(model)
    assert sorted(model.texts) == sorted([*text, 3] for text in texts)


def _ends(text: list[int]) -> range:
    return range(1, len(text) + 1)
