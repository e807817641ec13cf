"""Means over seeds: their intervals, and whether these hold what they promise."""

import math
from statistics import fmean

import numpy as np
import pytest

from eab.labs.tuning.seed_means import mean, paired_difference, student


def test_a_mean_of_three() -> None:
    found = mean({1: 1.0, 2: 2.0, 3: 6.0})
    assert found.value == 3.0
    assert found.seeds == 3
    assert found.error == pytest.approx(math.sqrt(7 / 3))
    assert found.margin == pytest.approx(4.303 * math.sqrt(7 / 3))
    assert not found.excludes_zero


def test_a_single_seed_has_no_interval_and_settles_nothing() -> None:
    found = mean({7: 5.0})
    assert found.margin is None
    assert found.fresh(4) is None
    assert not found.excludes_zero


def test_seeds_that_agree_exclude_zero_unless_they_are_zero() -> None:
    assert mean({1: 0.5, 2: 0.5}).excludes_zero
    assert not mean({1: 0.0, 2: 0.0}).excludes_zero


def test_a_difference_is_paired_by_seed() -> None:
    ours, theirs = {1: 10.0, 2: 20.0, 3: 30.0}, {1: 9.0, 2: 19.0, 4: 0.0}
    found = paired_difference(ours, theirs)
    assert (found.value, found.error, found.seeds) == (1.0, 0.0, 2)
    assert paired_difference(ours, {9: 1.0}) is None


def test_student_takes_the_safe_quantile_between_two_known_ones() -> None:
    assert student(1) == 12.706
    assert student(11) == student(10) > student(12)
    assert student(10_000) == 1.980


@pytest.mark.parametrize("seeds", [2, 4, 8])
def test_intervals_hold_what_they_promise(seeds: int) -> None:
    """2,000 sweeps of normal values: 95 % of both intervals contain what they are for.

    The standard error of such a share is 0.5 %; four of them are allowed.
    """
    generator = np.random.default_rng(seeds)
    own, other = 0, 0
    for _ in range(2000):
        drawn = generator.normal(3.0, 2.0, seeds)
        fresh = fmean(generator.normal(3.0, 2.0, 6))
        found = mean(dict(enumerate(drawn.tolist())))
        assert found.margin is not None
        width = found.fresh(6)
        own += abs(found.value - 3.0) <= found.margin
        other += abs(found.value - fresh) <= width
    assert own / 2000 == pytest.approx(0.95, abs=0.02)
    assert other / 2000 == pytest.approx(0.95, abs=0.02)


def test_a_difference_that_is_only_rounding_is_none() -> None:
    sums = {1: 0.1 + 0.2 + 0.3, 2: 0.1 + 0.2 + 0.3}
    found = paired_difference(sums, {1: 0.3 + 0.2 + 0.1, 2: 0.3 + 0.2 + 0.1})
    assert found is not None
    assert not found.excludes_zero
