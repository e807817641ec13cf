"""Recommends a threshold for a target number of paths or tokens, predicted from a pilot.

The pilot is a sweep over thresholds with a few seeds on the user's own prompts. Runs at the lowest
threshold are resimulated at the others if that is exact; otherwise the model makes them. Then
thresholds are added between the two that bracket the target (`next_threshold`). The recommended
threshold is always one that the pilot tried; nothing is interpolated.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal

from eab.config import MAX_PATHS, BranchingConfig
from eab.errors import ConfigError
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.frontier import setting_points
from eab.labs.tuning.quantities import quantity
from eab.labs.tuning.seed_means import Mean, mean

Wanted = Literal["paths", "tokens"]
THRESHOLDS: Final = (0.3, 0.45, 0.65, 0.8, 1.0, 1.3, 1.7, 2.2, 3.0)  # nats
PILOT_SEEDS: Final = 6
CHECK_SEEDS: Final = 6
_SPARE: Final = 3  # a pilot's path limit, as a multiple of the target number of paths
_LEAST_LIMIT: Final = 32
MOST_REFINEMENTS: Final = 6  # four halvings bring the widest gap of THRESHOLDS below _CLOSE
_CLOSE: Final = 1.03  # a ratio of thresholds
_NEAR: Final = 0.03  # a share of the target


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted mean of a setting over the prompts and some seeds."""

    value: float
    low: float | None  # lower end of the 95% interval for the mean over other seeds
    high: float | None  # upper end; both are None for a single seed

    def contains(self, measured: float) -> bool | None:
        """Whether a measured mean is in the interval; None if there is no interval."""
        if self.low is None or self.high is None:
            return None
        return self.low <= measured <= self.high


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A threshold, and the paths and tokens predicted for it."""

    config: BranchingConfig  # the settings with the threshold; their seed is 0
    wanted: tuple[Wanted, float]  # the kind of target, and the target number
    paths: Prediction
    tokens: Prediction  # tokens through the model in a run
    prompts: int
    seeds: int
    reached: bool  # whether the pilot's means reach or bracket the target
    # The nearest threshold on the other side of the target, and its mean; None if there is none.
    # Both means are far off if a small change of the threshold has a large effect.
    beyond: tuple[float, float] | None
    near: bool  # whether the mean is as close to the target as the seeds can resolve
    over_seeds: tuple[float, float]  # least and most over the seeds of the pilot
    tried: tuple[float, float]  # lowest and highest threshold of the pilot

    @property
    def threshold(self) -> float:
        """The recommended threshold, in nats."""
        return self.config.entropy_threshold

    @property
    def value(self) -> float:
        """The predicted mean of the targeted quantity."""
        return (self.paths if self.wanted[0] == "paths" else self.tokens).value

    @property
    def jumps(self) -> bool:
        """Whether the mean jumps past the target between two thresholds that are close together."""
        if self.near or self.beyond is None:
            return False
        low, high = sorted((self.threshold, self.beyond[0]))
        return high <= low * _CLOSE


def pilot_config(config: BranchingConfig, wanted: Wanted, number: float) -> BranchingConfig:
    """The settings that pilot and recommended runs share; ConfigError for an impossible target.

    Every path may fork whatever its weight, so that a run can be resimulated at higher thresholds.
    The path limit is a safeguard, far above the target.
    """
    most = MAX_PATHS // 2 if wanted == "paths" else MAX_PATHS * config.max_new_tokens
    if not 1 <= number <= most:
        raise ConfigError(f"the target is {number:,.0f} {wanted}; choose from 1 to {most:,}")
    paths = number if wanted == "paths" else number / config.max_new_tokens
    limit = min(MAX_PATHS, max(_LEAST_LIMIT, round(_SPARE * paths)))
    return replace(
        config,
        policy="fair",
        threshold_unit="nats",
        entropy_threshold=THRESHOLDS[0],
        min_fork_weight=0.0,
        max_paths=limit,
        seed=0,
    )


def recommend(
    pilot: Sequence[Cell], wanted: Wanted, number: float, check_seeds: int = CHECK_SEEDS
) -> Recommendation:
    """The pilot's threshold with the nearest mean; ConfigError if none ran every prompt.

    Ties go to the highest threshold. The interval is for the mean over `check_seeds` other seeds
    and the same prompts, if values are about normally distributed over seeds.
    """
    points = setting_points(pilot, quantity("tokens"), quantity("paths"))
    if not points:
        raise ConfigError(
            "the pilot has no threshold yet at which every prompt ran; let it continue"
        )
    by_threshold = {point.config.entropy_threshold: point for point in points}
    both = {
        threshold: {"paths": mean(point.gains), "tokens": mean(point.costs)}
        for threshold, point in by_threshold.items()
    }
    means = {threshold: of[wanted] for threshold, of in both.items()}
    sides = _bracket(means, number)
    best = _nearest(means, number)
    near = _is_near(means[best], number)
    if sides is not None and not near:  # the mean may be equal at many thresholds
        best = _nearest({side: means[side] for side in sides}, number)
    across = [] if sides is None else [side for side in sides if side != best]
    seen = by_threshold[best].gains if wanted == "paths" else by_threshold[best].costs
    return Recommendation(
        by_threshold[best].config,
        (wanted, number),
        _prediction(both[best]["paths"], check_seeds),
        _prediction(both[best]["tokens"], check_seeds),
        len({cell.prompt_id for cell in pilot}),
        means[best].seeds,
        sides is not None or any(each.value == number for each in means.values()),
        next(((side, means[side].value) for side in across), None),
        near,
        (min(seen.values()), max(seen.values())),
        (min(means), max(means)),
    )


def next_threshold(pilot: Sequence[Cell], wanted: Wanted, number: float) -> float | None:
    """The threshold to add to a pilot: halfway, on the log scale, between the neighbours whose
    means bracket the target. None if a mean is near enough, the two are close, or none bracket it.
    """
    of = quantity(wanted)
    means = {point.config.entropy_threshold: point.gain for point in setting_points(pilot, of, of)}
    if not means or abs(means[_nearest(means, number)].value - number) <= _NEAR * number:
        return None
    sides = _bracket(means, number)
    if sides is None or sides[1] <= sides[0] * _CLOSE:
        return None
    middle = math.sqrt(sides[0] * sides[1])
    return round(middle, 2 if middle >= 1 else 3)


def _nearest(means: Mapping[float, Mean], number: float) -> float:
    """The threshold whose mean is nearest; ties go to the highest threshold."""
    return min(means, key=lambda threshold: (abs(means[threshold].value - number), -threshold))


def _is_near(nearest: Mean, number: float) -> bool:
    """Whether the mean is within 3% or half a standard error; closer would say little more."""
    return abs(nearest.value - number) <= max(_NEAR * number, (nearest.error or 0.0) / 2)


def _bracket(means: Mapping[float, Mean], number: float) -> tuple[float, float] | None:
    """The neighbouring thresholds, lower first, whose means bracket the number."""
    for high, low in pairwise(sorted(means, reverse=True)):
        if (means[low].value - number) * (means[high].value - number) < 0:
            return low, high
    return None


def _prediction(of: Mean, seeds: int) -> Prediction:
    margin = of.fresh(seeds)
    if margin is None:
        return Prediction(of.value, None, None)
    return Prediction(of.value, max(1.0, of.value - margin), of.value + margin)


def measured_means(cells: Iterable[Cell]) -> Mapping[Wanted, Mean]:
    """Mean paths and tokens of one setting over its seeds; empty until a seed is complete."""
    points = setting_points(cells, quantity("tokens"), quantity("paths"))
    if not points:
        return {}
    return {"paths": points[0].gain, "tokens": points[0].cost}
