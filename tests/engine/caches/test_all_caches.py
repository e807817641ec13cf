"""All caches side by side under random batches, forks, releases and trims, compared with attention
without a cache.

The K and V of a token depend on its id and position only, so a cache can receive them once, or
again with the whole text. The reference keeps each path's text and computes softmax(q k) v over all
of it, in float64.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count, islice
from typing import Any, get_args

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from torch import Tensor

from eab.config import CacheName
from eab.engine import compiled
from eab.engine.caches import growth, rows
from eab.engine.caches.base import KVCache
from eab.engine.caches.baselines import ChainCache, ConcatCowCache, DeepCopyCache, Recompute
from eab.engine.caches.factory import make_cache
from eab.engine.caches.per_path import PagedCache
from eab.engine.caches.shape import EVERYTHING, KVShape, LayerAttention, Reach
from eab.engine.caches.tree import TreeCache
from eab.errors import MemoryLimitError
from eab.lessons.checks.cache import (
    GROUPS,
    HEADS,
    KEYS,
    LAYERS,
    LONGEST,
    QUERIES,
    SCALE,
    SIZE,
    VALUES,
    VOCAB,
    attend_all,
)
from eab.run.events import KVUsage

EXACT = {torch.float64: 1e-12, torch.float32: 5e-6}
ROOM = 2**30
BLOCK = 3  # rows
REACHES = (EVERYTHING, Reach(window=4, chunk=6))  # one per layer
SHAPE = KVShape(
    LAYERS,
    GROUPS,
    SIZE,
    torch.float64,
    torch.device("cpu"),
    group=HEADS // GROUPS,
    attention=tuple(map(LayerAttention, REACHES)),
)
Text = list[tuple[int, int]]  # (token, number of its batch and path); forks copy the list

CACHES: dict[str, Callable[[], KVCache]] = {
    f"tree, r={r}": partial(make_cache, "tree", SHAPE, r, ROOM) for r in (1, 3, 64)
} | {
    name: partial(make_cache, name, SHAPE, 1, ROOM, block_size=BLOCK)
    for name in get_args(CacheName)
    if name != "tree"
}
# Where attention is compiled for the processor, these use it, and give the same bits.
FLOAT32 = {
    f"{name}, float32": partial(
        make_cache, name, replace(SHAPE, dtype=torch.float32), 3, ROOM, block_size=BLOCK
    )
    for name in get_args(CacheName)
}
CACHES |= FLOAT32


def reference(layer: int, text: Sequence[int], new: int) -> Tensor:
    """Attention of the last `new` tokens over the whole text, (T, H, D)."""
    position = torch.arange(len(text))
    query, key, value = (table[layer][position, text] for table in (QUERIES, KEYS, VALUES))
    key, value = (rows.repeat_interleave(HEADS // GROUPS, dim=1) for rows in (key, value))
    scores = torch.einsum("thd,chd->htc", query, key) * SCALE
    distance, reach = position[:, None] - position, REACHES[layer]
    hidden = distance < 0
    if reach.window:
        hidden |= distance >= reach.window
    if reach.chunk:
        hidden |= position[:, None] // reach.chunk != position // reach.chunk
    scores = scores.masked_fill(hidden, float("-inf"))
    return torch.einsum("htc,chd->thd", scores.softmax(-1), value)[-new:]


def worst_errors(
    found: Iterable[list[list[Tensor]]],
    paths: Sequence[int],
    new: Sequence[Sequence[int]],
    texts: dict[int, Text],
) -> list[float]:
    """Return the largest difference from the reference of what `attend_all` found with each cache;
    `texts` already contains the new tokens.
    """
    ids = [[token for token, _ in texts[path]] for path in paths]
    expected = [
        [reference(layer, text, len(tokens)) for text, tokens in zip(ids, new, strict=True)]
        for layer in range(LAYERS)
    ]
    return [
        max(
            (out - exact).abs().max().item()
            for outputs, own in zip(by_layer, expected, strict=True)
            for out, exact in zip(outputs, own, strict=True)
        )
        for by_layer in found
    ]


def live_tensors(cache: Any) -> list[Tensor]:
    """All K and V tensors of the cache."""
    match cache:
        case TreeCache():
            return [*cache._keys, *cache._values]
        case PagedCache():
            return [tensor for block in cache._blocks.values() for tensor in block.tensors]
        case ChainCache():
            return [tensor for segment in cache._segments() for tensor in segment.tensors]
        case _:
            return []


def placed(text: Text) -> list[tuple[int, int, int]]:
    """The tokens of a text, each with its position."""
    return [(position, *token) for position, token in enumerate(text)]


def full_blocks(text: Text) -> list[tuple[tuple[int, int], ...]]:
    """The full blocks of a text, each with all that comes before it."""
    return [tuple(text[:end]) for end in range(BLOCK, len(text) + 1, BLOCK)]


class AllCaches(RuleBasedStateMachine):
    """Equal (token, batch) pairs at one position are the same token of a common ancestor, so their
    row can be shared.
    """

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.caches = {name: make() for name, make in CACHES.items()}
        self.trees = [cache for cache in self.caches.values() if isinstance(cache, TreeCache)]
        self.texts: dict[int, Text] = {0: []}
        self.next_path, self.batches = 1, 0
        self.totals = dict.fromkeys(CACHES, (0, 0, 0))

    @initialize(gathers=st.booleans(), shrinks=st.booleans())
    def begin(self, gathers: bool, shrinks: bool) -> None:
        self.patch.setattr(rows, "GATHERED_ROW_COST", 0 if gathers else 10**9)
        if shrinks:
            self.patch.setattr(growth, "LEAST_GIVEN_BACK", 0)

    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        open_paths = [path for path, text in self.texts.items() if len(text) <= LONGEST - 5]
        if not open_paths:
            return
        some_paths = st.lists(st.sampled_from(open_paths), min_size=1, max_size=6, unique=True)
        some_tokens = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=5)
        paths = data.draw(some_paths)
        new = [data.draw(some_tokens) for _ in paths]
        self.batches += 1
        for path, tokens in zip(paths, new, strict=True):
            self.texts[path] = self.texts[path] + [
                (token, self.batches * 100 + path) for token in tokens
            ]
        found = {
            name: attend_all(cache, paths, new, cache.shape.dtype)
            for name, cache in self.caches.items()
        }
        errors = worst_errors(found.values(), paths, new, self.texts)
        for (name, cache), error in zip(self.caches.items(), errors, strict=True):
            assert error < EXACT[cache.shape.dtype], name
        if compiled.can_compile():
            tree, *others = ([*chain(*found[name])] for name in FLOAT32)
            assert all(all(map(torch.equal, tree, other)) for other in others)
        self.new_tokens_take_the_lowest_free_rows()

    def new_tokens_take_the_lowest_free_rows(self) -> None:
        for tree in self.trees:
            new = tree._rows.tolist()
            others = {*tree._table.used.tolist()} - {*new}
            free = (row for row in count() if row not in others)
            assert new == [*islice(free, len(new))], f"with r={tree.r}"

    @rule(data=st.data(), number=st.integers(2, 4))
    @precondition(lambda self: len(self.texts) < 8)
    def fork(self, data: st.DataObject, number: int) -> None:
        path = data.draw(st.sampled_from(list(self.texts)))
        children = range(self.next_path, self.next_path + number)
        self.next_path += number
        text = self.texts.pop(path)
        self.texts |= {child: list(text) for child in children}
        held = [tensor for tree in self.trees for tensor in live_tensors(tree)]
        before = [tensor.clone() for tensor in held]
        for cache in self.caches.values():
            cache.fork(path, children)
        after = [tensor for tree in self.trees for tensor in live_tensors(tree)]
        for old, content, new in zip(held, before, after, strict=True):
            assert new is old, "a fork copies nothing"
            assert torch.equal(new, content)

    @rule(data=st.data())
    @precondition(lambda self: len(self.texts) > 1)
    def release(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(list(self.texts)))
        del self.texts[path]
        for cache in self.caches.values():
            cache.release(path)

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(list(self.texts)))
        length = data.draw(st.integers(0, len(self.texts[path])))
        self.texts[path] = self.texts[path][:length]
        for cache in self.caches.values():
            cache.trim(path, length)

    def usages(self) -> dict[str, KVUsage]:
        return {name: cache.usage(list(self.texts)) for name, cache in self.caches.items()}

    @invariant()
    def rows_and_the_ledger_are_what_the_tensors_hold(self) -> None:
        for name, usage in self.usages().items():
            rows = usage.rows_shared + usage.rows_private + usage.rows_spare
            assert usage.bytes_held == rows * self.caches[name].shape.row_bytes, name
            tensors = live_tensors(self.caches[name])
            assert usage.bytes_held == sum(tensor.nbytes for tensor in tensors), name
            addresses = [tensor.data_ptr() for tensor in tensors if tensor.nbytes]
            assert len(set(addresses)) == len(addresses), name
            for tensor in tensors:
                assert tensor.untyped_storage().nbytes() == tensor.nbytes, name
            assert self.caches[name]._ledger.live_bytes == usage.bytes_held <= usage.peak_bytes
            totals = (usage.bytes_copied, usage.allocations, usage.peak_bytes)
            assert all(new >= old for new, old in zip(totals, self.totals[name], strict=True)), name
            self.totals[name] = totals

    @invariant()
    def each_cache_reports_what_it_shares(self) -> None:
        sizes = [len(text) for text in self.texts.values()]
        seen = [token for text in self.texts.values() for token in placed(text)]
        shared = {token for token in seen if seen.count(token) > 1}
        for name, usage in self.usages().items():
            assert usage.rows_independent == sum(sizes), name
            assert [rows.path for rows in usage.paths] == list(self.texts), name
            rows = [(rows.shared, rows.private) for rows in usage.paths]
            if name.startswith("recompute"):
                assert set(rows) == {(0, 0)}
                assert usage.bytes_held == 0
            elif name.startswith("deep-copy"):
                assert rows == [(0, size) for size in sizes]
                assert (usage.rows_shared, usage.rows_private) == (0, sum(sizes))
                assert usage.rows_spare == 0
            elif name.startswith("paged"):
                full = [full_blocks(text) for text in self.texts.values()]
                common = [
                    BLOCK * sum(sum(one in own for own in full) > 1 for one in each)
                    for each in full
                ]
                assert rows == [(one, size - one) for one, size in zip(common, sizes, strict=True)]
                assert usage.rows_spare == sum(-size % BLOCK for size in sizes)
            else:
                common = [len(shared & {*placed(text)}) for text in self.texts.values()]
                each = zip(common, sizes, strict=True)
                assert rows == [(one, size - one) for one, size in each], name
                of_all = (len(shared), len(set(seen) - shared))
                assert (usage.rows_shared, usage.rows_private) == of_all, name

    def teardown(self) -> None:
        self.patch.undo()
        for path in self.texts:
            for cache in self.caches.values():
                cache.release(path)
        self.texts = {}
        for name, usage in self.usages().items():
            assert usage.rows_shared + usage.rows_private == 0, name
            assert usage.bytes_held == 0 or name.startswith("tree"), f"{name} leaks"


@pytest.mark.parametrize("examples", [25, pytest.param(150, marks=pytest.mark.nightly)])
def test_all_caches_equal_attention_without_a_cache(examples: int) -> None:
    each = settings(max_examples=examples, stateful_step_count=40)
    run_state_machine_as_test(AllCaches, settings=each)


BYTES = SHAPE.row_bytes


def counted(cache: KVCache, path: int) -> tuple[int, int, int, int]:
    usage = cache.usage([path])
    return (
        usage.bytes_held // BYTES,
        usage.bytes_copied // BYTES,
        usage.allocations,
        usage.peak_bytes // (BYTES // 4),
    )


def test_the_cost_of_one_fork_in_each_cache() -> None:
    """Ten rows, a fork into three, one token each. The counts are rows held, rows copied, tensors
    made, and the peak in quarters of a row.
    """
    found = {}
    for name, make in CACHES.items():
        cache = make()
        attend_all(cache, [0], [[1] * 10], cache.shape.dtype)
        cache.fork(0, [1, 2, 3])
        attend_all(cache, [1, 2, 3], [[1]] * 3, cache.shape.dtype)
        found[name] = counted(cache, 1)
    # Four tensors (K and V of two layers): one row of one tensor is a quarter of a row.
    # One growth; the last old tensor exists at the same time as the new ones.
    assert found["tree, r=1"] == (13, 10, 8, 4 * 13 + 10)
    # All rows are allocated once.
    assert found["tree, r=64"] == (64 + 0, 0, 4, 4 * 64)
    # Two copies, then each path grows.
    assert found["deep-copy"] == (33, 20 + 30, 4 + 8 + 12, 4 * 33 + 10)
    # Each path concatenates 11 rows per tensor.
    assert found["concat-cow"] == (13, 0 + 33, 4 + 12 + 12, 4 * 12 + 2 + 2 + 22)
    # Three full blocks and one row; two copies of that row, three blocks of four tensors, and one
    # more (three rows) for each path; the peak is K and V of a layer, joined.
    assert found["paged"] == (3 * (3 + 3), 2 + 3 * 11 + 10, 4 * 6 + 4 + 12, 4 * 18 + 22)
    # K and V of one layer for three texts.
    assert found["recompute"] == (0, 0, 0, 2 * 33)
    # A single path grows its own segment, and does not concatenate it with others.
    cache = ConcatCowCache(SHAPE, ROOM)
    for _ in range(4):
        attend_all(cache, [0], [[1]])
    assert counted(cache, 0) == (4, 0 + 1 + 2 + 3, 16, 4 * 4 + 3)


@pytest.mark.parametrize("name", ["tree", "concat-cow", "deep-copy"])
def test_no_cache_holds_more_than_its_limit_and_each_stays_usable(name: Any) -> None:
    cache = make_cache(name, SHAPE, 1, 10 * BYTES)
    attend_all(cache, [0], [[1] * 8])
    with pytest.raises(MemoryLimitError, match="kv_limit_mib"):
        attend_all(cache, [0], [[1] * 3])
    cache.trim(0, 6)
    texts: dict[int, Text] = {0: [(1, 0)] * 6 + [(2, 0)] * 4}
    found = attend_all(cache, [0], [[2] * 4])
    assert max(worst_errors([found], [0], [[2] * 4], texts)) < EXACT[torch.float64]
    assert cache.usage([0]).bytes_held == 10 * BYTES


def test_what_would_exceed_the_limit_is_refused_before_it_is_made() -> None:
    cache = DeepCopyCache(SHAPE, 10 * BYTES)
    attend_all(cache, [0], [[1] * 5])
    with pytest.raises(MemoryLimitError, match="needs 0 MiB"):
        cache.fork(0, [1, 2, 3])
    assert cache.usage([0]).bytes_held == 5 * BYTES
    cache.fork(0, [1, 2])
    assert cache.usage([1, 2]).bytes_held == 10 * BYTES
    passes = Recompute(SHAPE, 10 * BYTES)
    attend_all(passes, [0], [[1] * 10])
    with pytest.raises(MemoryLimitError, match="one forward pass over all texts"):
        passes.prepare([0], [[1]])
    assert passes.usage([0]).rows_independent == 10
