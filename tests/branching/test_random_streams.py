"""Counter-based randomness: a draw depends on its four numbers only."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eab.branching.random_streams import ROOT, child_stream_key, pruning_uniform, uniform
from eab.config import MAX_SEED

SEEDS = st.integers(0, MAX_SEED)
STREAM_KEYS = st.integers(0, 2**64 - 1)
STEPS = st.integers(0, 5000)

FROZEN_UNIFORMS = [0.6299085342998937, 0.19765265011863864, 0.8836289693691156]
FROZEN_PRUNING = 0.6131746863976323
FROZEN_KEYS = [259418745062592498, 15316269418215960375]


@given(seed=SEEDS, stream_key=STREAM_KEYS, step=STEPS, index=st.integers(0, 16))
def test_a_draw_lies_in_zero_to_one_and_repeats(seed, stream_key, step, index):
    drawn = uniform(seed, stream_key, step, index)
    assert 0 <= drawn < 1
    assert drawn == uniform(seed, stream_key, step, index)
    assert (drawn * 2**53).is_integer()


@given(seed=SEEDS, stream_key=st.integers(0, 2**64 - 2), step=STEPS, token=st.integers(0, 300_000))
def test_a_child_gets_a_key_of_its_own_that_no_other_stream_uses(seed, stream_key, step, token):
    key = child_stream_key(stream_key, step, token)
    assert key not in (stream_key, ROOT, 2**64 - 1)
    assert key == child_stream_key(stream_key, step, token)
    assert key != child_stream_key(stream_key, step, token + 1)
    assert key != child_stream_key(stream_key, step + 1, token)
    assert 0 <= uniform(seed, key, step, 0) < 1


def test_draws_differ_when_any_of_their_numbers_differs():
    numbers = {
        uniform(seed, stream_key, step, index)
        for seed in range(6)
        for stream_key in range(6)
        for step in range(6)
        for index in range(6)
    }
    pruning = {pruning_uniform(seed, step) for seed in range(6) for step in range(6)}
    assert len(numbers) == 6**4
    assert len(pruning) == 36
    assert not numbers & pruning


@pytest.mark.parametrize("varied", ["seed", "stream_key", "step", "index"])
def test_draws_are_uniform_along_each_of_their_numbers(varied):
    where = {"seed": 11, "stream_key": 22, "step": 33, "index": 0}
    draws = [uniform(**where | {varied: value}) for value in range(20_000)]
    counts = Counter(int(draw * 50) for draw in draws)
    assert chi_square(counts, 50, len(draws)) < 100  # 49 +- 10; 5 sigma


def test_neighbouring_draws_are_independent():
    draws = [uniform(5, ROOT, step, 0) for step in range(20_001)]
    pairs = Counter((int(one * 7), int(two * 7)) for one, two in itertools.pairwise(draws))
    assert chi_square(pairs, 49, 20_000) < 98


def chi_square(counts: Counter, cells: int, total: int) -> float:
    expected = total / cells
    return (
        sum((count - expected) ** 2 / expected for count in counts.values())
        + (cells - len(counts)) * expected
    )


def test_the_streams_are_those_of_earlier_versions_so_that_old_seeds_repeat():
    assert [
        uniform(0, ROOT, 0, 0),
        uniform(1, ROOT, 2, 3),
        uniform(MAX_SEED, 2**64 - 1, 4095, 1),
    ] == FROZEN_UNIFORMS
    assert pruning_uniform(7, 3) == FROZEN_PRUNING
    assert [child_stream_key(ROOT, 0, 0), child_stream_key(123, 45, 678)] == FROZEN_KEYS
