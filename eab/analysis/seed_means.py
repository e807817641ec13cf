"""Means over seeds, which are independent draws, with Student's t intervals."""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Final

# Quantile 0.975 of Student's t, by degrees of freedom; in gaps, the row above is conservative.
_FREEDOM: Final = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 60, 120)
_STUDENT: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306),
    *(2.262, 2.228, 2.179, 2.131, 2.086, 2.042, 2.000, 1.980),
)


def student(freedom: int) -> float:
    """Quantile 0.975 of Student's t for this many degrees of freedom (at least 1)."""
    return _STUDENT[bisect_right(_FREEDOM, freedom) - 1]


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over seeds."""

    value: float
    error: float | None  # standard error; None for a single seed, which has no spread
    seeds: int

    @property
    def margin(self) -> float | None:
        """Half the width of the 95% confidence interval of the mean."""
        return None if self.error is None else student(self.seeds - 1) * self.error

    @property
    def excludes_zero(self) -> bool:
        """Whether the sign is certain: the interval does not contain 0."""
        return self.margin is not None and abs(self.value) > self.margin

    def fresh(self, seeds: int) -> float | None:
        """Half the width of the 95% interval for the mean of this many other, normal seeds."""
        if self.error is None:
            return None
        return student(self.seeds - 1) * self.error * math.sqrt(1 + self.seeds / seeds)


def mean(by_seed: Mapping[int, float]) -> Mean:
    """The mean of at least one value, one value per seed."""
    values = list(by_seed.values())
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return Mean(fmean(values), error, len(values))


def paired_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Mean | None:
    """The mean of ours - theirs over common seeds, which share random numbers."""
    # Means of the same numbers, summed in different orders, can differ in their last digits.
    shared = {seed: round(ours[seed] - theirs[seed], 10) for seed in ours if seed in theirs}
    return mean(shared) if shared else None
