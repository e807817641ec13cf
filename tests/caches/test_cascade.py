"""Attention in lanes: equal to the plain model whatever forks, ends or moves, and used only where
it pays.
"""

import random
from collections import Counter

import numpy as np
import pytest
import torch
from plain_pass import read_plainly

from eab.caches import cascade
from eab.caches.cascade import SuffixBlock, compacted, extended, worthwhile
from eab.caches.shape import KVShape
from eab.caches.tree import TreeCache
from eab.config import BranchingConfig
from eab.engine.loop import generate
from eab.engine.request import Request
from eab.errors import MemoryLimitError
from eab.events import Growth
from eab.run import fold

ROOM = 2**30
LONGEST = 60

EXACT = 1e-9
SHAPE = KVShape(2, 2, 4, torch.float32, torch.device("cpu"))


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes wherever they are possible, so that small cases go through them."""
    monkeypatch.setattr(cascade, "CALL", 0)
    monkeypatch.setattr(cascade, "LANE_ROW", 0)


class Story:
    """Random steps of one token per path, with forks, endings and now and then something else in
    between.
    """

    def __init__(self, pair, seed: int, r: int = 3) -> None:
        self.pair, self.rng = pair, random.Random(seed)
        self.cache = TreeCache(pair.ours.kv_shape, r, ROOM)
        self.texts: dict[int, list[int]] = {0: []}
        self.born = 1
        self.seen: Counter[str] = Counter()
        self.rows: list[list[int]] = []

    def run(self, steps: int) -> None:
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
        children = range(self.born, self.born + count)
        self.born += count
        self.cache.fork(path, children)
        text = self.texts.pop(path)
        self.texts |= {child: list(text) for child in children}

    def extend(self, paths: list[int], tokens: list[list[int]]) -> None:
        packed = self.cache.pack(paths, tokens)
        self.note(packed.growths)
        with torch.inference_mode():
            logits = self.pair.ours.forward([packed])
        self.rows.append(self.cache._rows.tolist())
        for path, new, line in zip(paths, tokens, logits, strict=True):
            self.texts[path] = self.texts[path] + new
            assert (line - read_plainly(self.pair, self.texts[path])).abs().max().item() < EXACT

    def note(self, growths: tuple[Growth, ...]) -> None:
        used = self.cache._lanes
        self.seen["passes with lanes"] += bool(used)
        self.seen["passes with several stretches"] += len(used) > 1
        self.seen["lanes with several queries"] += any(lane.shape[1] > 1 for lane in used)
        self.seen["lanes that nobody looks into"] += any(
            lane.shape[0] > len(self.texts) for lane in used
        )
        self.seen["rows moved up"] += any(
            growth.rows == self.cache.rows and growth.rows_copied for growth in growths
        )


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2"])
def test_paths_in_lanes_equal_the_model_without_a_cache(twins, eager, family):
    seen: Counter[str] = Counter()
    for seed in range(12):
        story = Story(twins(family), seed)
        story.run(45)
        seen += story.seen
    assert len(seen) == 5, f"every kind of pass must have come up; this came: {seen}"


def test_the_allocation_step_does_not_decide_which_rows_are_used(twins, eager):
    runs = [Story(twins("llama"), seed=3, r=r) for r in (1, 4, 100)]
    for run in runs:
        run.run(40)
    assert runs[0].seen["rows moved up"] > 0
    assert runs[0].rows == runs[1].rows == runs[2].rows


def test_rows_of_an_ended_lane_are_used_before_the_memory_limit_is_felt(eager):
    cache = TreeCache(SHAPE, 1, byte_limit=21 * SHAPE.row_bytes)
    cache.pack([0], [[1] * 5])
    cache.fork(0, [1, 2, 3, 4])
    for _ in range(4):
        cache.pack([1, 2, 3, 4], [[1]] * 4)
    assert cache._lanes
    assert cache.rows == 21
    cache.release(4)
    [growth] = cache.pack([1, 2, 3], [[1]] * 3).growths
    assert (growth.rows, growth.rows_copied) == (21, 17)
    with pytest.raises(MemoryLimitError):
        cache.pack([1, 2, 3], [[1]] * 3)


def test_a_run_decides_the_same_with_and_without_lanes(twins, monkeypatch):
    config = BranchingConfig(
        max_new_tokens=30, entropy_threshold=1.5, min_fork_weight=0.1, max_paths=9
    )

    def texts() -> list[tuple[int, ...]]:
        return [
            sample.token_ids
            for sample in fold(generate(twins("qwen2").ours, Request("w5 w9 w33 w2", config))).samples()
        ]

    plain = texts()
    monkeypatch.setattr(cascade, "CALL", 0)
    monkeypatch.setattr(cascade, "LANE_ROW", 0)
    used = []
    honest = TreeCache._look
    monkeypatch.setattr(
        TreeCache, "_look", lambda self, *given: (honest(self, *given), used.append(self._lanes))[0]
    )
    assert texts() == plain
    assert len(plain) > 1
    assert sum(map(bool, used)) > 10


# The rule, by hand


def private(paths: int, steps: int, before: int) -> tuple[list[SuffixBlock], np.ndarray]:
    stretch = SuffixBlock(before, tuple(range(paths)), steps)
    seen = np.zeros((paths, stretch.end), dtype=np.bool_)
    seen[:, :before] = True
    for path in range(paths):
        seen[path, before + path :: paths] = True
    return [stretch], seen


@pytest.mark.parametrize(
    ("paths", "steps", "pays"),
    [
        (1, 500, False),
        (4, 40, False),
        (20, 5, False),
        (20, 40, False),
        (20, 200, True),
        (64, 40, True),
        (64, 200, True),
    ],
)
def test_lanes_pay_for_many_paths_with_long_private_parts(paths, steps, pays):
    stretches, seen = private(paths, steps, before=300)
    assert bool(worthwhile(stretches, seen)) is pays


def test_a_path_that_sees_no_lane_rules_the_lanes_out():
    stretches, seen = private(64, 40, before=300)
    assert worthwhile(stretches, seen)
    seen[3, 300:] = False
    assert worthwhile(stretches, seen) == []


def test_the_queries_of_a_forked_path_share_its_lane():
    stretches, seen = private(64, 60, before=10)
    [part] = worthwhile(stretches, np.vstack([seen, seen[7]]))
    assert part.queries.shape == (64, 2)
    assert part.queries[7].tolist() == [7, 64]
    assert [part.queries.ravel()[place] for place in part.back] == list(range(65))


def test_a_stretch_goes_on_only_with_the_same_paths_right_behind_it():
    first = extended([], 10, (1, 2))
    assert extended(first, 12, (1, 2)) == [SuffixBlock(10, (1, 2), 2)]
    assert extended(first, 12, (2, 1)) == [SuffixBlock(10, (1, 2), 1), SuffixBlock(12, (2, 1), 1)]
    assert extended(first, 13, (1, 2)) == [SuffixBlock(13, (1, 2), 1)]


def test_moving_up_closes_the_gaps_of_lanes_that_ended():
    stretches = [SuffixBlock(2, (5, 6, 7), 2), SuffixBlock(8, (5, 7), 1)]
    kept = np.array([0, 2, 4, 5, 7, 8, 9])  # row 1 and the lane of path 6 (rows 3 and 6) are free
    assert compacted(stretches, kept) == [SuffixBlock(1, (5, 7), 2), SuffixBlock(5, (5, 7), 1)]
