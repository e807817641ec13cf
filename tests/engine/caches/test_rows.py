"""The rows of each token gathered into one batch are read as they are under a mask."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from row_lists import lists_of

from eab.engine.caches.rows import GatheredRows, MaskedRows, plan_readings
from eab.engine.caches.shape import ORDINARY, KVShape, LayerAttention, Reach
from eab.engine.caches.tree import TreeCache

CPU = torch.device("cpu")


def plan(seen: np.ndarray, layer: LayerAttention = ORDINARY, padded: bool = False):
    """What layers of one kind read, in float64, with 2 groups of 3 heads of size 8."""
    shape = KVShape(1, 2, 8, torch.float64, CPU, group=3, attention=(layer,))
    return plan_readings(shape, shape.mask_kinds, [lists_of(seen)], seen.shape[1], padded)[0]


def private(paths: int, prompt: int, own: int) -> np.ndarray:
    """Which rows paths see that share a prompt and have written a row each, step by step."""
    seen = np.zeros((paths, prompt + paths * own), dtype=np.bool_)
    seen[:, :prompt] = True
    for path in range(paths):
        seen[path, prompt + path :: paths] = True
    return seen


@given(
    tokens=st.integers(1, 6),
    rows=st.integers(1, 40),
    share=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
@torch.inference_mode()
def test_gathered_rows_give_the_same_as_rows_under_a_mask(tokens, rows, share, seed):
    random = np.random.default_rng(seed)
    seen = random.random((tokens, rows)) < share
    seen[np.arange(tokens), random.integers(0, rows, tokens)] = True
    query, keys, values = (
        torch.from_numpy(random.normal(size=(heads, count, 8)))
        for heads, count in ((6, tokens), (2, rows), (2, rows))
    )
    gathered = GatheredRows(lists_of(seen), CPU)
    masked = plan(seen, padded=True)
    assert isinstance(masked, MaskedRows)
    found, expected = (
        (
            one.attend(query, keys, values, 0.3, ORDINARY).transpose(0, 1),
            *one.attend_with_lse(query, keys, values, 0.3),
        )
        for one in (gathered, masked)
    )
    for own, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(own, plain, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("paths", "prompt", "own", "gathers"),
    [
        (1, 0, 40, False),
        (4, 300, 40, False),
        (20, 300, 40, False),
        (16, 4, 48, True),
        (20, 4, 40, True),
        (64, 4, 480, True),
    ],
)
def test_rows_are_gathered_where_that_reads_less(paths, prompt, own, gathers):
    seen = private(paths, prompt, own)
    assert isinstance(plan(seen), GatheredRows) == gathers
    assert isinstance(plan(seen, padded=True), MaskedRows)
    assert isinstance(plan(seen, LayerAttention(soft_cap=30.0)), MaskedRows)
    one = np.zeros((1, 100), dtype=np.bool_)
    one[0, ::2] = True
    assert isinstance(plan(one), MaskedRows)
    one[0, 40:] = False
    assert isinstance(plan(one), GatheredRows), "a text among many free rows"


def test_a_layer_with_a_window_starts_at_the_first_row_that_is_seen():
    layer = LayerAttention(Reach(window=61))
    cache = TreeCache(KVShape(1, 2, 8, torch.float64, CPU, attention=(layer,)), 1, 2**20)
    cache.prepare([0], [[0] * 99])
    cache.prepare([0], [[0]])
    [reading] = cache._readings
    assert (reading.first, reading.end, reading.mask) == (39, 100, None)
