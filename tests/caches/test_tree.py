"""The tree cache compared with the model without a cache, under random forks, batches, releases and
trims.
"""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from made_runs import events_of
from plain_logits import plain_logits
from table_model import TableModel, random_table

from eab.caches.shape import KVShape
from eab.caches.tree import TreeCache
from eab.errors import MemoryLimitError
from eab.events import KvMeasured, RowsAllocated
from eab.run import RunState

EXACT = 1e-9
ROOM = 2**30
SHAPE = KVShape(2, 2, 4, torch.float32, torch.device("cpu"))
TOKENS = st.integers(0, 71)


@torch.inference_mode()
def logits_through(
    cache: TreeCache, pair, paths: Sequence[int], tokens: Sequence[Sequence[int]]
) -> torch.Tensor:
    """Logits after the last new token of each path, computed through the cache."""
    return pair.ours.forward([cache.prepare(paths, tokens)])


def tensors(cache: TreeCache) -> list[torch.Tensor]:
    return [*cache._keys, *cache._values]


class CacheMachine(RuleBasedStateMachine):
    """A path is a list of (token, row) pairs. Forks copy the list, so equal pairs are shared
    rows.
    """

    pair = None
    longest = 40

    def __init__(self) -> None:
        super().__init__()
        self.cache = TreeCache(self.pair.ours.kv_shape, 1, ROOM)
        self.paths: dict[int, list[tuple[int, int]]] = {0: []}
        self.next_path = 1
        self.ever_used = 0

    def rows_in_use(self) -> set[int]:
        return {row for path in self.paths.values() for _, row in path}

    @rule(r=st.integers(1, 5))
    def change_the_allocation_step(self, r: int) -> None:
        self.cache.r = r

    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        open_paths = [path for path, text in self.paths.items() if len(text) < self.longest]
        if not open_paths:
            return
        paths = data.draw(
            st.lists(st.sampled_from(open_paths), min_size=1, max_size=6, unique=True)
        )
        new = [data.draw(st.lists(TOKENS, min_size=1, max_size=4)) for _ in paths]
        used = self.rows_in_use()
        logits = logits_through(self.cache, self.pair, paths, new)
        rows = self.cache._rows.tolist()
        free = (row for row in range(10_000) if row not in used)
        assert rows == [next(free) for _ in rows], (
            "a new token takes the lowest free row, whatever r is"
        )
        self.ever_used = max(self.ever_used, *(row + 1 for row in rows))
        given = iter(rows)
        for path, tokens in zip(paths, new, strict=True):
            self.paths[path] = self.paths[path] + [(token, next(given)) for token in tokens]
        texts = [[token for token, _ in self.paths[path]] for path in paths]
        assert (logits - plain_logits(self.pair, texts)).abs().max().item() < EXACT

    @rule(data=st.data(), count=st.integers(2, 4))
    @precondition(lambda self: len(self.paths) < 8)
    def fork(self, data: st.DataObject, count: int) -> None:
        path = data.draw(st.sampled_from(list(self.paths)))
        before = [(tensor.data_ptr(), tensor.clone()) for tensor in tensors(self.cache)]
        children = range(self.next_path, self.next_path + count)
        self.next_path += count
        self.cache.fork(path, children)
        text = self.paths.pop(path)
        self.paths |= {child: list(text) for child in children}
        for (address, content), tensor in zip(before, tensors(self.cache), strict=True):
            assert tensor.data_ptr() == address
            assert torch.equal(tensor, content)

    @rule(data=st.data())
    @precondition(lambda self: len(self.paths) > 1)
    def release(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(list(self.paths)))
        self.cache.release(path)
        del self.paths[path]

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(list(self.paths)))
        length = data.draw(st.integers(0, len(self.paths[path])))
        self.cache.trim(path, length)
        self.paths[path] = self.paths[path][:length]

    @invariant()
    def the_usage_agrees_with_the_paths(self) -> None:
        usage = self.cache.usage(list(self.paths))
        used = len(self.rows_in_use())
        assert usage.rows_shared + usage.rows_private == used
        assert usage.rows_spare == self.cache.rows - used
        assert (used + usage.rows_spare) * self.cache.shape.row_bytes == usage.bytes_held
        assert usage.bytes_held == sum(tensor.nbytes for tensor in tensors(self.cache))
        assert usage.rows_independent == sum(len(text) for text in self.paths.values())
        assert [rows.path for rows in usage.paths] == list(self.paths)
        for rows in usage.paths:
            others = {
                row for path, text in self.paths.items() if path != rows.path for _, row in text
            }
            own = {row for _, row in self.paths[rows.path]}
            assert (rows.shared, rows.private) == (len(own & others), len(own - others))

    @invariant()
    def rows_that_were_never_used_are_zero(self) -> None:
        assert all(not tensor[:, self.ever_used :].any() for tensor in tensors(self.cache))


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt_neox"])
@pytest.mark.parametrize("examples", [15, pytest.param(60, marks=pytest.mark.slow)])
def test_random_forks_batches_releases_and_trims_equal_the_model_without_a_cache(
    twins, family, examples
):
    machine = type("Machine", (CacheMachine,), {"pair": twins(family)})
    each = settings(max_examples=examples, stateful_step_count=40)
    run_state_machine_as_test(machine, settings=each)


class SiblingsSeeEachOther(TreeCache):
    """Broken on purpose: the tokens of one batch see each other across paths."""

    def _assign_rows(self, paths, counts, rows):
        positions, visible = super()._assign_rows(paths, counts, rows)
        visible[:, rows] = True
        return positions, visible


class ReleasedRowsStayVisible(TreeCache):
    """Broken on purpose: a free row is reused while a path still sees it."""

    def trim(self, path, length):
        visible = self._visible[self._path_index[path]].copy()
        super().trim(path, length)
        self._visible[self._path_index[path]] |= visible


class PositionsOffByOne(TreeCache):
    """Broken on purpose: the positions of a second batch are too large by one."""

    def _assign_rows(self, paths, counts, rows):
        positions, visible = super()._assign_rows(paths, counts, rows)
        return positions + (positions > 4), visible


def worst_error(cache: TreeCache, pair) -> float:
    """A prompt, a fork, two batches and a trim; the largest difference from the model without a
    cache.
    """
    texts = {0: [3, 9, 4, 30, 22]}
    logits_through(cache, pair, [0], [texts[0]])
    cache.fork(0, [1, 2])
    texts = {1: [*texts[0], 7], 2: [*texts[0], 8]}
    first = logits_through(cache, pair, [1, 2], [[7], [8]]) - plain_logits(pair, [*texts.values()])
    cache.trim(1, 4)
    texts = {2: [*texts[2], 52], 1: [*texts[1][:4], 50, 51]}
    second = logits_through(cache, pair, [*texts], [[52], [50, 51]])
    second = second - plain_logits(pair, [*texts.values()])
    return max(first.abs().max().item(), second.abs().max().item())


def test_the_comparison_notices_a_cache_that_is_broken(twins):
    pair = twins("qwen2")
    assert worst_error(TreeCache(pair.ours.kv_shape, 1, ROOM), pair) < EXACT
    for broken in (SiblingsSeeEachOther, ReleasedRowsStayVisible, PositionsOffByOne):
        assert worst_error(broken(pair.ours.kv_shape, 1, ROOM), pair) > 1e-3


def fill(cache: TreeCache, paths: Sequence[int], count: int) -> list[int]:
    """Prepare `count` new tokens per path, and return their rows."""
    cache.prepare(paths, [[1] * count for _ in paths])
    return cache._rows.tolist()


def test_rows_of_a_released_path_are_used_again_before_the_tensors_grow():
    cache = TreeCache(SHAPE, 4, ROOM)
    fill(cache, [0], 3)
    cache.fork(0, [1, 2])
    assert fill(cache, [1, 2], 2) == [3, 4, 5, 6]
    rows = cache.rows
    cache.release(1)
    assert fill(cache, [2], 2) == [3, 4]
    assert cache.rows == rows


def test_a_row_stays_until_the_last_path_that_sees_it_is_gone():
    cache = TreeCache(SHAPE, 1, ROOM)
    fill(cache, [0], 2)
    cache.fork(0, [1, 2, 3])
    cache.release(1)
    cache.trim(2, 1)
    assert cache.usage([2, 3]).rows_spare == 0
    cache.release(3)
    assert cache.usage([2]).rows_spare == 1


@pytest.mark.parametrize("r", [1, 2, 7])
def test_the_tensors_grow_by_r_steps_worth_of_rows_and_keep_their_content(r):
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


def test_the_last_growth_counts_the_rows_that_are_free():
    cache = TreeCache(SHAPE, 5, ROOM)
    fill(cache, [0], 1)
    cache.fork(0, [1, 2, 3])
    for steps_left in (2, 1):
        cache.reserve(0, steps_left)
        fill(cache, [1, 2, 3], 1)
    assert cache.rows == 1 + 3 + 3


@pytest.mark.parametrize("r", ["auto", 40])
def test_near_the_limit_the_tensors_grow_only_as_far_as_it_allows(r):
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


def test_every_path_of_a_run_sees_its_own_tokens_and_nothing_else():
    model = TableModel(random_table(3, 7), stop_ids=[6])
    settings = {"entropy_threshold": 0.5, "max_paths": 9, "max_new_tokens": 20, "r": 2, "seed": 4}
    started, *events = events_of(model, "2 5 1", **settings)
    run = RunState(started)
    for event in events:
        if isinstance(event, KvMeasured):
            means = [
                np.mean([2, 5, 1, *(token.token for token in run.tokens(rows.path))])
                for rows in event.usage.paths
            ]
            assert model.seen[event.step] == pytest.approx(means, abs=1e-12)
        run.apply(event)
    assert len(model.seen) == len(run.steps) == 20


def test_the_bytes_in_the_events_are_those_of_the_rows():
    model = TableModel(random_table(1, 6))
    settings = {"entropy_threshold": 0.5, "max_paths": 8, "max_new_tokens": 15, "r": 3}
    rows = 0
    for event in events_of(model, "0 1 2 3", **settings):
        if isinstance(event, RowsAllocated):
            assert event.growth.rows_copied == rows
            assert event.growth.bytes_copied == rows * model.kv_shape.row_bytes
            rows = event.growth.rows
        if isinstance(event, KvMeasured):
            usage = event.usage
            assert usage.bytes_held == rows * model.kv_shape.row_bytes
            assert usage.rows_shared + usage.rows_private + usage.rows_spare == rows
            assert usage.rows_private == sum(path.private for path in usage.paths)
            assert all(path.shared + path.private == 4 + event.step for path in usage.paths)


def test_with_r_at_its_maximum_the_rows_are_allocated_once():
    settings = {"entropy_threshold": 0.3, "max_paths": 6, "max_new_tokens": 12, "r": 12}
    events = events_of(TableModel(random_table(1, 6)), "0 1", **settings)
    assert sum(isinstance(event, RowsAllocated) for event in events) == 1
