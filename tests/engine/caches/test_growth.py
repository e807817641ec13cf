"""How tensors grow: the cost model against brute force (exact counts, the best r, the fit; and r =
auto), and the tensors of the tree cache. test_all_caches.py compares its attention with that without
a cache, and its rows and bytes with what the tensors hold.
"""

from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eab.config import AllocationStep
from eab.engine.caches.growth import (
    LEAST_STEPS,
    CacheWorkload,
    CostModel,
    best_r,
    best_rows,
    fit_cost_model,
    growth_step,
    in_whole_blocks,
)
from eab.engine.caches.shape import KVShape
from eab.engine.caches.tree import TreeCache
from eab.errors import MemoryLimitError

SECONDS = st.floats(1e-8, 1e-3)
COSTS = st.builds(CostModel, SECONDS, st.floats(0, 1e-2), SECONDS, st.floats(0, 1e-4))


class GrowthCounts(NamedTuple):
    """Exact counts of a run."""

    growths: int
    rows_copied: int  # rows copied by them
    spare_visits: int  # spare rows, summed over the steps

    def seconds(self, costs: CostModel, tokens: int = 1) -> float:
        """The overhead of these counts, for forward passes of `tokens` tokens."""
        each = (costs.allocation, costs.copy_row, costs.spare_row_seconds(tokens))
        return sum(map(mul, self, each))


def overhead(costs: CostModel, work: CacheWorkload, rows_ahead: float) -> float:
    """The closed form whose minimum `best_rows` is: seconds of growths and spare rows if the
    tensors grow by `rows_ahead` rows at a time.
    """
    growths = work.rows / rows_ahead
    copied = growths * work.prompt + work.rows * (growths - 1) / 2
    spare = (work.rows / work.kept) * (rows_ahead - work.kept) / 2
    return (
        costs.copy_row * copied
        + costs.allocation * growths
        + costs.spare_row_seconds(work.tokens) * spare
    )


def count_growths(work: CacheWorkload, r: AllocationStep) -> GrowthCounts:
    """Exact counts of a run in which every step keeps `work.kept` rows (a whole number)."""
    kept = int(work.kept)
    used = held = work.prompt
    growths = copied = spare = 0
    for _ in range(work.rows // kept):
        if used + kept > held:
            more = growth_step(r, used, kept) * kept
            growths, copied, held = growths + 1, copied + used, held + more
        used += kept
        spare += held - used
    return GrowthCounts(growths, copied, spare)


@given(
    growths=st.integers(1, 40),
    r=st.integers(1, 40),
    prompt=st.integers(0, 300),
    kept=st.integers(1, 6),
    costs=COSTS,
)
def test_the_closed_form_is_exact_where_r_divides_the_length(growths, r, prompt, kept, costs):
    work = CacheWorkload(growths * r * kept, prompt, kept, tokens=kept)
    counted = count_growths(work, r)
    assert counted.growths == growths
    assert overhead(costs, work, r * kept) == pytest.approx(counted.seconds(costs, kept), rel=1e-9)


@settings(max_examples=25)
@given(
    rows=st.integers(64, 1500),
    prompt=st.integers(0, 600),
    ratio=st.floats(0.3, 5.0),
    allocation=st.floats(0, 200),
)
def test_the_best_r_is_as_good_as_the_best_one_found_by_trying_all(rows, prompt, ratio, allocation):
    costs = CostModel(copy_row=ratio, allocation=allocation, spare_row=1.0)
    work = CacheWorkload(rows, prompt)
    least = min(overhead(costs, work, r) for r in range(1, rows + 1))
    assert overhead(costs, work, best_r(costs, work)) <= least * 1.01
    steps = {*range(1, 65), *range(65, rows + 1, 7), rows, best_r(costs, work)}
    counted = {r: count_growths(work, r).seconds(costs) for r in steps}
    # With few growths, a last one that is hardly used counts for more.
    growths = work.rows / best_r(costs, work)
    assert counted[best_r(costs, work)] <= min(counted.values()) * (1 + 1.2 / growths)


@given(
    costs=COSTS,
    work=st.builds(CacheWorkload, st.integers(1, 4000), st.integers(0, 4000), st.integers(1, 40)),
)
def test_the_best_rows_lie_between_one_step_and_all(costs: CostModel, work: CacheWorkload) -> None:
    assert min(work.kept, work.rows) <= best_rows(costs, work) <= max(work.kept, work.rows)


def test_costs_measured_as_zero_lead_to_the_lowest_or_highest_r() -> None:
    free_to_visit, free_to_copy = CostModel(1e-6, 0.0, 0.0), CostModel(0.0, 0.0, 1e-6)
    assert best_r(free_to_visit, CacheWorkload(100)) == 100
    assert best_r(free_to_copy, CacheWorkload(100)) == 1
    assert [*map(in_whole_blocks, (1, 15, 16, 17, 32))] == [1, 15, 16, 32, 32]


@given(rows=st.integers(0, 5000), paths=st.integers(1, 256))
def test_with_auto_spare_rows_are_at_most_a_quarter_of_those_in_use_or_a_few_steps(rows, paths):
    r = growth_step("auto", rows, paths)
    assert r == LEAST_STEPS or LEAST_STEPS < r <= rows / 4 / paths


@pytest.mark.parametrize("rows", [64, 1024, 16384])
@pytest.mark.parametrize("paths", [1, 4, 64])
def test_with_auto_at_most_a_few_times_the_written_rows_are_copied(rows: int, paths: int) -> None:
    work = CacheWorkload(rows, prompt=10, kept=paths)
    auto, few_steps = (count_growths(work, r) for r in ("auto", LEAST_STEPS))
    assert auto.rows_copied <= 5 * (rows + 10)
    assert auto.growths <= few_steps.growths


@given(
    planted=st.builds(
        CostModel,
        st.floats(1e-7, 1e-4),
        st.floats(0, 1e-2),
        st.floats(1e-7, 1e-4),
        st.floats(0, 1e-5),
    )
)
def test_the_fit_recovers_known_constants_despite_an_outlier(planted: CostModel) -> None:
    grid = (100, 200, 300, 400, 500, 600, 700)
    copies = [(rows, planted.allocation + rows * planted.copy_row) for rows in grid]
    copies[4] = (500, 10 * copies[4][1])
    visits = {
        tokens: [(rows, 1e-3 + rows * planted.spare_row_seconds(tokens)) for rows in grid]
        for tokens in (1, 8)
    }
    found = fit_cost_model(copies, visits, max_tokens=8)
    assert found.copy_row == pytest.approx(planted.copy_row, rel=1e-6)
    assert found.allocation == pytest.approx(planted.allocation, rel=1e-6, abs=1e-9)
    assert found.spare_row == pytest.approx(planted.spare_row, rel=1e-6)
    assert found.spare_query == pytest.approx(planted.spare_query, rel=1e-6, abs=1e-11)
    falling = [(100, 3.0), (200, 2.0), (300, 1.0)]  # noise never gives negative constants
    found = fit_cost_model(falling, {1: falling, 8: falling}, max_tokens=8)
    assert min(found.copy_row, found.spare_row, found.spare_query) == 0.0
    assert found.allocation >= 0.0


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
