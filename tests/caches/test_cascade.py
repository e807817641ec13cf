"""Shared-prefix attention equals the plain model whatever forks, ends or moves, and is used only
where it pays off.
"""

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from eab.caches import cascade, growth, row_order, tree
from eab.caches.cascade import SuffixBlock, choose_blocks, next_slots, with_step
from eab.caches.row_order import best_order
from eab.caches.shape import KVShape
from eab.caches.tree import TreeCache
from eab.errors import MemoryLimitError
from eab.events import Growth

ROOM = 2**30
LONGEST = 60

EXACT = 1e-9
SHAPE = KVShape(2, 2, 4, torch.float32, torch.device("cpu"))


@torch.inference_mode()
def plain_logits(pair, texts: list[list[int]]) -> torch.Tensor:
    """Logits after the last token of each text, from a full forward pass without a cache.

    All texts go through in one batch: a token does not see the padding behind shorter texts.
    """
    longest = max(map(len, texts))
    filled = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
    logits = pair.plain(filled, use_cache=False).logits
    return logits[range(len(texts)), [len(text) - 1 for text in texts]]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use suffix blocks wherever possible, so that small cases use them, too."""
    monkeypatch.setattr(cascade, "CALL_COST", 0)
    monkeypatch.setattr(cascade, "SUFFIX_ROW_COST", 0)
    monkeypatch.setattr(cascade, "SCATTERED_ROW_COST", 1)
    monkeypatch.setattr(row_order, "MOVE_COST", 40)
    monkeypatch.setattr(row_order, "MOVED_ROW_COST", 1)
    for module in (growth, tree):
        monkeypatch.setattr(module, "LEAST_GIVEN_BACK", 0)


class Story:
    """Random steps of one token per path, with forks, releases, and now and then other changes."""

    def __init__(self, pair, seed: int, r: int = 3) -> None:
        self.pair, self.rng = pair, random.Random(seed)
        self.cache = TreeCache(pair.ours.kv_shape, r, ROOM)
        self.texts: dict[int, list[int]] = {0: []}
        self.next_path = 1
        self.seen: Counter[str] = Counter()
        self.rows: list[list[int]] = []
        self.held = 0

    def run(self, steps: int) -> None:
        self.cache.reserve(5, None)
        self.extend([0], [[self.rng.randrange(72) for _ in range(5)]])
        self.fork(0, 4)
        for _ in range(steps):
            self.step()
            self.something_else(self.rng.random())

    def step(self) -> None:
        if max(map(len, self.texts.values())) < LONGEST:
            self.extend([*self.texts], [[self.rng.randrange(72)] for _ in self.texts])

    def something_else(self, chance: float) -> None:
        path = self.rng.choice([*self.texts])
        if chance < 0.08 and len(self.texts) < 9:
            self.fork(path, 2)
        elif chance < 0.2 and len(self.texts) > 2:
            self.cache.release(path)
            del self.texts[path]
        elif chance < 0.22:
            self.extend([path], [[self.rng.randrange(72) for _ in range(3)]])
        elif chance < 0.24:
            length = self.rng.randrange(len(self.texts[path]))
            self.cache.trim(path, length)
            self.texts[path] = self.texts[path][:length]

    def fork(self, path: int, count: int) -> None:
        children = range(self.next_path, self.next_path + count)
        self.next_path += count
        self.cache.fork(path, children)
        text = self.texts.pop(path)
        self.texts |= {child: list(text) for child in children}

    def extend(self, paths: list[int], tokens: list[list[int]]) -> None:
        batch = self.cache.prepare(paths, tokens)
        self.note(batch.growths)
        with torch.inference_mode():
            logits = self.pair.ours.forward([batch])
        self.rows.append(self.cache._rows.tolist())
        for path, new in zip(paths, tokens, strict=True):
            self.texts[path] = self.texts[path] + new
        expected = plain_logits(self.pair, [self.texts[path] for path in paths])
        assert (logits - expected).abs().max().item() < EXACT

    def note(self, growths: tuple[Growth, ...]) -> None:
        used = self.cache._suffixes
        self.seen["batches with a suffix block"] += bool(used)
        self.seen["batches with several blocks"] += len(used) > 1
        self.seen["batches with suffixes path by path"] += any(part.block.by_path for part in used)
        self.seen["batches with rows after the blocks"] += bool(
            used and used[-1].block.end < self.cache.end
        )
        self.seen["suffixes with several queries"] += any(
            part.queries.shape[1] > 1 for part in used
        )
        self.seen["suffixes that no path sees"] += any(
            part.block.suffixes > len(self.texts) for part in used
        )
        self.seen["moved rows"] += any(not growth.r for growth in growths)
        self.seen["rows given back"] += any(
            b < a for a, b in pairwise((self.held, *(growth.rows for growth in growths)))
        )
        self.held = self.cache.rows
        assert self.cache.bytes_held == self.held * self.cache.shape.row_bytes
        usage = self.cache.usage([*self.texts])
        assert usage.rows_shared + usage.rows_private + usage.rows_spare == self.held


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2"])
@pytest.mark.parametrize("seeds", [4, pytest.param(12, marks=pytest.mark.slow)])
def test_shared_prefix_attention_equals_the_model_without_a_cache(twins, eager, family, seeds):
    seen: Counter[str] = Counter()
    for seed in range(seeds):
        story = Story(twins(family), seed)
        story.run(45)
        seen += story.seen
    assert len(seen) == 8, f"every kind of batch must occur; these did: {seen}"


def test_the_growth_step_does_not_affect_which_rows_are_used(twins, eager):
    runs = [Story(twins("llama"), seed=3, r=r) for r in (1, 4, 100)]
    for run in runs:
        run.run(40)
    assert min(run.seen["moved rows"] for run in runs) > 0
    assert runs[0].seen["rows given back"] > 0
    assert runs[0].rows == runs[1].rows == runs[2].rows


def test_rows_of_a_released_suffix_are_reused_before_the_memory_limit_is_reached(eager):
    cache = TreeCache(SHAPE, 1, byte_limit=21 * SHAPE.row_bytes)
    cache.prepare([0], [[1] * 5])
    cache.fork(0, [1, 2, 3, 4])
    for _ in range(4):
        cache.prepare([1, 2, 3, 4], [[1]] * 4)
    assert cache._suffixes
    assert cache.rows == 21
    cache.release(4)
    [growth] = cache.prepare([1, 2, 3], [[1]] * 3).growths
    assert (growth.rows, growth.rows_copied) == (21, 11)  # of 17; the others stay in place
    with pytest.raises(MemoryLimitError):
        cache.prepare([1, 2, 3], [[1]] * 3)


# The choice of blocks, worked out by hand


def private(paths: int, steps: int, before: int) -> tuple[list[SuffixBlock], np.ndarray]:
    block = SuffixBlock(before, tuple(range(paths)), steps)
    visible = np.zeros((paths, block.end), dtype=np.bool_)
    visible[:, :before] = True
    for path in range(paths):
        visible[path, before + path :: paths] = True
    return [block], visible


NOT_YET, PAYS = [(1, 500), (4, 40), (20, 5)], [(20, 40), (20, 200), (64, 40), (64, 200)]


@pytest.mark.parametrize(
    ("paths", "steps", "pays"),
    [*((*one, False) for one in NOT_YET), *((*one, True) for one in PAYS)],
)
def test_suffix_blocks_pay_off_for_many_paths_with_long_private_suffixes(paths, steps, pays):
    blocks, visible = private(paths, steps, before=300)
    assert bool(choose_blocks(blocks, visible).chain) is pays


def test_a_block_is_not_used_if_some_path_sees_none_of_its_suffixes():
    blocks, visible = private(64, 40, before=300)
    assert choose_blocks(blocks, visible).chain
    visible[3, 300:] = False
    assert not choose_blocks(blocks, visible).chain


def test_a_block_is_continued_only_by_its_paths_in_order_directly_behind_it():
    block = [SuffixBlock(10, (1, 2, 3, 4, 5), 1)]
    assert next_slots(block, 15, (1, 2, 3, 4, 5), gaps=False) == [0, 1, 2, 3, 4]
    assert next_slots(block, 15, (1, 3, 4, 5), gaps=True) == [0, 2, 3, 4]
    assert next_slots(block, 15, (1, 3, 4, 5), gaps=False) is None
    assert next_slots(block, 15, (1, 5), gaps=True) is None, "most of its paths have ended"
    assert next_slots(block, 15, (2, 1, 3, 4, 5), gaps=True) is None
    assert next_slots(block, 15, (1, 3, 4, 6), gaps=True) is None
    assert next_slots(block, 16, (1, 2, 3, 4, 5), gaps=True) is None


def test_a_step_extends_a_block_or_starts_one():
    first = with_step([], 10, (1, 2), continues=False)
    assert first == [SuffixBlock(10, (1, 2), 1)]
    assert with_step(first, 12, (1, 2), continues=True) == [SuffixBlock(10, (1, 2), 2)]
    assert with_step(first, 12, (2, 1), False) == [*first, SuffixBlock(12, (2, 1), 1)]
    assert with_step(first, 12, (), False) == first
    assert with_step(first, 11, (1, 2), False) == [SuffixBlock(11, (1, 2), 1)], "rows used again"


def test_rows_are_ordered_with_ancestors_first_and_then_each_suffix(eager):
    # A prompt of 2 rows, then 2 steps of the paths 5, 6 and 7, step by step. Path 6 has ended, 5
    # has forked into 8 and 9, and 7, 8 and 9 have written a row each. Rows 0, 4 and 7 are free.
    positions = np.array([0, 0, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4])
    seen_by = {7: [1, 2, 5, 8, 9], 8: [1, 2, 3, 6, 10], 9: [1, 2, 3, 6, 11]}
    visible = np.zeros((3, 12), dtype=np.bool_)
    for row, rows in zip(visible, seen_by.values(), strict=True):
        row[rows] = True
    order = best_order(visible, positions, [*seen_by], cascades=True)
    assert order.rows.tolist() == [1, 2, 5, 8, 3, 6, 9, 10, 11]
    assert order.blocks == [
        SuffixBlock(2, (7, 8), 2, by_path=True),
        SuffixBlock(6, (7, 8, 9), 1, by_path=True),
    ]
    plain = best_order(visible, positions, [*seen_by], cascades=False)
    assert plain.rows.tolist() == [1, 2, 5, 3, 8, 6, 9, 10, 11]
    assert plain.blocks == []
