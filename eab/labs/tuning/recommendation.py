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
from eab.labs.tuning.cell import COSTS, PATHS, Cell
from eab.labs.tuning.frontier import Mean, SettingPoint, setting_points

CHECK_HEADINGS: Final = ("", "Predicted", "Measured with other seeds", "Inside the interval")
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
class Recommendation:
    """A threshold, and the paths and tokens predicted for it."""

    config: BranchingConfig  # the settings with the threshold; their seed is 0
    wanted: tuple[Wanted, float]  # the kind of target, and the target number
    predicted: Mapping[Wanted, Mean]  # paths, and tokens through the model, of a run
    # The nearest threshold on the other side of the target, and its mean; None if there is none.
    # Both means are far off if a small change of the threshold has a large effect.
    beyond: tuple[float, float] | None
    near: bool  # whether the mean is as close to the target as the seeds can resolve

    @property
    def threshold(self) -> float:
        """The recommended threshold, in nats."""
        return self.config.entropy_threshold

    @property
    def value(self) -> float:
        """The predicted mean of the targeted quantity."""
        return self.predicted[self.wanted[0]].value

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


def recommend(pilot: Sequence[Cell], wanted: Wanted, number: float) -> Recommendation:
    """The pilot's threshold with the nearest mean; ConfigError if none ran every prompt.

    Ties go to the highest threshold.
    """
    by_threshold = {point.config.entropy_threshold: point for point in _points(pilot)}
    if not by_threshold:
        raise ConfigError(
            "the pilot has no threshold yet at which every prompt ran; let it continue"
        )
    means = {threshold: _means(point)[wanted] for threshold, point in by_threshold.items()}
    sides = _bracket(means, number)
    best = _nearest(means, number)
    near = _is_near(means[best], number)
    if sides is not None and not near:  # the mean may be equal at many thresholds
        best = _nearest({side: means[side] for side in sides}, number)
    across = next((side for side in sides or () if side != best), None)
    point = by_threshold[best]
    return Recommendation(
        point.config,
        (wanted, number),
        _means(point),
        None if across is None else (across, means[across].value),
        near,
    )


def _points(cells: Iterable[Cell]) -> list[SettingPoint]:
    return setting_points(cells, COSTS["tokens"], PATHS)


def _means(point: SettingPoint) -> dict[Wanted, Mean]:
    return {"paths": point.gain, "tokens": point.cost}


def next_threshold(pilot: Sequence[Cell], wanted: Wanted, number: float) -> float | None:
    """The threshold to add to a pilot: halfway, on the log scale, between the neighbours whose
    means bracket the target. None if a mean is near enough, the two are close, or none bracket it.
    """
    means = {p.config.entropy_threshold: _means(p)[wanted] for p in _points(pilot)}
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


def interval(of: Mean) -> tuple[float, float] | None:
    """The 95% interval for the mean of CHECK_SEEDS other seeds and the same prompts, if values are
    about normally distributed over seeds; None for a single seed.
    """
    margin = of.fresh(CHECK_SEEDS)
    return None if margin is None else (max(1.0, of.value - margin), of.value + margin)


def measured_means(cells: Iterable[Cell]) -> Mapping[Wanted, Mean]:
    """Mean paths and tokens of one setting over its seeds; empty until a seed is complete."""
    points = _points(cells)
    return _means(points[0]) if points else {}


def recommendation_sentence(advice: Recommendation) -> str:
    """The threshold for the target and its mean; or that none was found, with the nearest ones."""
    wanted, number = advice.wanted
    if advice.near:
        return (
            f"Threshold {advice.threshold:g} nats; {wanted} per run: {_brief(advice.value)} on "
            f"average (target {number:,.0f})."
        )
    found = [(advice.threshold, advice.value), *([advice.beyond] if advice.beyond else [])]
    means = ", ".join(f"{_brief(mean)} at {threshold:g} nats" for threshold, mean in sorted(found))
    between = advice.beyond is not None and not advice.jumps
    return (
        f"No threshold that was tried gives {number:,.0f} {wanted} per run. On average: {means}."
        f"{' Press Predict to look between them.' if between else ''}"
    )


def _brief(number: float) -> str:
    return f"{number:,.0f}" if number >= 9.95 else f"{number:.1f}".removesuffix(".0")


def check_rows(
    advice: Recommendation, measured: Mapping[Wanted, Mean]
) -> list[tuple[str, str, str, str]]:
    """Predictions and measurements: name, predicted, measured, whether inside the interval."""
    rows = []
    for name, predicted in advice.predicted.items():
        ends, seen = interval(predicted), measured.get(name)
        between = "" if ends is None else f" ({_brief(ends[0])} to {_brief(ends[1])})"
        inside = "–"
        if ends is not None and seen is not None:
            inside = "yes" if ends[0] <= seen.value <= ends[1] else "no"
        words = f"{_brief(predicted.value)}{between}"
        shown = "not measured yet" if seen is None else f"{seen.value:,.1f}"
        rows.append((f"{name.capitalize()} per run", words, shown, inside))
    return rows
