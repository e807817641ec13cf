"""Fearnhead-Clifford pruning: survivor count, constant sum, unchanged heavy weights, no bias."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eab.engine.branching.fair import fearnhead_clifford

LAST = 1 - 2.0**-53  # the largest possible draw
UNIFORMS = st.one_of(st.sampled_from([0.0, 2.0**-53, 0.5, LAST]), st.floats(0, LAST))
SOME_WEIGHT = st.one_of(
    st.floats(1e-6, 1.0),
    st.sampled_from([0.1, 0.2, 0.25, 1 / 3, 1.0]),
    st.floats(-300, 0).map(lambda e: 10.0**e),
)
WEIGHTS = st.lists(st.one_of(SOME_WEIGHT, SOME_WEIGHT, st.just(0.0)), min_size=1, max_size=30)
GRID = [(index + 0.5) / 1000 for index in range(1000)]


@given(weights=WEIGHTS, limit=st.integers(1, 12), uniform=UNIFORMS)
@example(weights=[0.1] * 10, limit=3, uniform=0.0)
@example(weights=[0.1] * 10, limit=3, uniform=LAST)
@example(weights=[1 / 3] * 7, limit=6, uniform=0.0)
@example(weights=[1.0] * 200, limit=150, uniform=LAST)
@example(weights=[0.0] * 3, limit=2, uniform=0.7)
@example(weights=[0.0, 0.5, 0.0, 0.5], limit=2, uniform=0.7)
def test_survivors_their_sum_and_their_weights(weights, limit, uniform):
    """As many as the limit survive, with the same sum; heavy ones keep their weights, and light
    ones get an equal weight.
    """
    after = fearnhead_clifford(weights, limit, uniform)
    survivors = [weight for weight in after if weight is not None]
    assert math.fsum(survivors) == pytest.approx(math.fsum(weights), rel=1e-12)
    if len(weights) <= limit:
        assert survivors == weights
        return
    positive = [weight for weight in weights if weight > 0]
    assert len(survivors) <= limit
    assert len(survivors) >= min(limit, len(positive)) or min(positive) < 1e-12 * max(weights)
    light = {new for old, new in zip(weights, after, strict=True) if new not in (None, old)}
    assert len(light) <= 1
    for c in light:
        both = zip(weights, after, strict=True)
        assert all(new == old for old, new in both if old > c * (1 + 1e-12))
        kept = math.fsum(min(1.0, weight / c) for weight in weights)
        assert kept == pytest.approx(limit, abs=1e-9)


@given(weights=st.lists(st.floats(0.001, 1.0), min_size=2, max_size=12), limit=st.integers(1, 6))
def test_each_weight_is_preserved_in_expectation(weights, limit):
    means = [0.0] * len(weights)
    for uniform in GRID:
        for index, weight in enumerate(fearnhead_clifford(weights, limit, uniform)):
            means[index] += (weight or 0.0) / len(GRID)
    # Systematic resampling keeps each weight on one interval of u, so the grid is off by at most
    # two points, each of weight c.
    assert means == pytest.approx(weights, abs=2 * sum(weights) / len(GRID))


def test_a_worked_example_keeps_the_heavy_weight_and_picks_among_the_light_ones():
    weights = [0.1, 0.6, 0.1, 0.1, 0.1]  # limit 3: c = 0.2
    for uniform, expected in (
        (0.0, [None, 0.6, 0.2, None, 0.2]),
        (0.6, [0.2, 0.6, None, 0.2, None]),
    ):
        assert fearnhead_clifford(weights, 3, uniform) == pytest.approx(expected)
    for uniform in GRID[::10]:  # one of each pair of neighbours in the tree
        kept = [weight is not None for weight in fearnhead_clifford([0.09, 0.11] * 5, 5, uniform)]
        assert all(sum(kept[pair : pair + 2]) == 1 for pair in range(0, 10, 2))
