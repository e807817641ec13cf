"""Recommends a threshold for a target number of paths or tokens, from a sweep over thresholds.

Such a sweep, the pilot, runs the user's own prompts with a few seeds. Runs at the lowest threshold
are resimulated at the others if that is exact; otherwise the model makes them. The recommended
threshold is always one that was tried; nothing is interpolated.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from eab.config import MAX_PATHS, BranchingConfig
from eab.errors import ConfigError
from eab.labs.tuning.cell import COSTS, PATHS, Cell
from eab.labs.tuning.frontier import Mean, setting_points

Wanted = Literal["paths", "tokens"]
# nats; each is about 12% above the one before
THRESHOLDS: Final = tuple(round(0.3 * 10 ** (step / 20), 2) for step in range(21))
PILOT_SEEDS: Final = 6
OTHER_SEEDS: Final = 6  # seeds for whose mean the interval is
HEADINGS: Final = ("", "Recommended", f"Interval for {OTHER_SEEDS} other seeds")
_SPARE: Final = 3  # a pilot's path limit, as a multiple of the target number of paths
_MIN_LIMIT: Final = 32


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A threshold, and the paths and tokens predicted for it."""

    config: BranchingConfig  # the settings with the threshold; their seed is 0
    predicted: Mapping[Wanted, Mean]  # paths, and tokens through the model, of a run

    def rows(self) -> list[tuple[str, str, str]]:
        """The threshold and the predictions with their intervals, as text; see HEADINGS."""
        predictions = [
            (f"{name.capitalize()} per run", _brief(mean.value), _between(mean))
            for name, mean in self.predicted.items()
        ]
        return [("Threshold", f"{self.config.entropy_threshold:g} nats", ""), *predictions]


def pilot_config(config: BranchingConfig, wanted: Wanted, number: float) -> BranchingConfig:
    """The settings that pilot and recommended runs share; ConfigError for an impossible target.

    Every path may fork whatever its weight, so that a run can be resimulated at higher thresholds.
    The path limit is a safeguard, far above the target.
    """
    most = MAX_PATHS // 2 if wanted == "paths" else MAX_PATHS * config.max_new_tokens
    if not 1 <= number <= most:
        raise ConfigError(f"the target is {number:,.0f} {wanted}; choose from 1 to {most:,}")
    paths = number if wanted == "paths" else number / config.max_new_tokens
    limit = min(MAX_PATHS, max(_MIN_LIMIT, round(_SPARE * paths)))
    return replace(
        config,
        policy="fair",
        threshold_unit="nats",
        entropy_threshold=THRESHOLDS[0],
        min_fork_weight=0.0,
        max_paths=limit,
        seed=0,
    )


def recommend(cells: Iterable[Cell], wanted: Wanted, number: float) -> Recommendation:
    """The threshold whose mean over the seeds is nearest to the number; of equal ones the highest.
    ConfigError if none ran every prompt.
    """
    points = setting_points(cells, COSTS["tokens"], PATHS)
    if not points:
        raise ConfigError(
            "the pilot has no threshold yet at which every prompt ran; let it continue"
        )
    means: list[tuple[BranchingConfig, dict[Wanted, Mean]]] = [
        (point.config, {"paths": point.gain, "tokens": point.cost}) for point in points
    ]
    return Recommendation(
        *min(
            means,
            key=lambda one: (abs(one[1][wanted].value - number), -one[0].entropy_threshold),
        )
    )


def interval(of: Mean) -> tuple[float, float] | None:
    """The 95% interval for the mean of OTHER_SEEDS other seeds and the same prompts, if values are
    about normally distributed over seeds; None for a single seed.
    """
    margin = of.fresh(OTHER_SEEDS)
    return None if margin is None else (max(1.0, of.value - margin), of.value + margin)


def _between(mean: Mean) -> str:
    ends = interval(mean)
    return "" if ends is None else f"{_brief(ends[0])} to {_brief(ends[1])}"


def _brief(number: float) -> str:
    return f"{number:,.0f}" if number >= 9.95 else f"{number:.1f}".removesuffix(".0")
