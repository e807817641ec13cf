"""Means over seeds, their intervals, and the coverage of the intervals."""

import math
from statistics import fmean

import numpy as np
import pytest

from eab.analysis.seed_means import mean, paired_difference, student


def test_a_mean_of_three_seeds_by_hand() -> None:
    found = mean({1: 1.0, 2: 2.0, 3: 6.0})
    assert found.value == 3.0
    assert found.seeds == 3
    assert found.error == pytest.approx(math.sqrt(7 / 3))
    assert found.margin == pytest.approx(4.303 * math.sqrt(7 / 3))
    assert not found.excludes_zero


def test_a_single_seed_has_no_interval_and_decides_nothing() -> None:
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


def test_student_takes_the_larger_of_two_neighbouring_quantiles() -> None:
    assert student(1) == 12.706
    assert student(11) == student(10) > student(12)
    assert student(10_000) == 1.980


@pytest.mark.parametrize("seeds", [2, 4, 8])
def test_intervals_have_their_nominal_coverage(seeds: int) -> None:
    """In 2,000 sweeps of normal values, 95% of intervals contain the true mean, or a fresh one.

    The standard error of such a share is 0.5%; four standard errors are allowed.
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


def test_a_difference_due_to_rounding_does_not_exclude_zero() -> None:
    sums = {1: 0.1 + 0.2 + 0.3, 2: 0.1 + 0.2 + 0.3}
    found = paired_difference(sums, {1: 0.3 + 0.2 + 0.1, 2: 0.3 + 0.2 + 0.1})
    assert found is not None
    assert not found.excludes_zero
