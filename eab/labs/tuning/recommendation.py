"""A threshold for a wanted number of paths or tokens, predicted from a pilot.

The pilot is a sweep over thresholds with a few seeds on the user's own prompts. The runs at the
lowest threshold are resimulated at the others where that is exact, and made by the model elsewhere.
What is recommended was in the pilot; nothing is interpolated.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
_SPARE: Final = 3  # the path limit of a pilot is so many times the wanted number of paths
_LEAST_LIMIT: Final = 32


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a setting will take on average over the prompts and some seeds."""

    value: float
    low: float | None  # the mean of other seeds is at least this
    high: float | None  # at most this, with 95 % confidence; both None for one seed

    def contains(self, measured: float) -> bool | None:
        """Whether a measured mean lies in the interval; None if there is none."""
        if self.low is None or self.high is None:
            return None
        return self.low <= measured <= self.high


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A threshold, and what it is predicted to give."""

    config: BranchingConfig  # the settings, with the threshold; their seed is 0
    wanted: tuple[Wanted, float]  # what was wanted, and how much of it
    paths: Prediction
    tokens: Prediction  # tokens through the model in a run
    prompts: int
    seeds: int
    reached: bool  # whether the wanted number lies between those of the pilot's thresholds
    # The nearest threshold on the other side of the wanted number, and its mean; None if there is
    # none. Where a small change of the threshold changes much, both are far off.
    beyond: tuple[float, float] | None

    @property
    def threshold(self) -> float:
        """In nats."""
        return self.config.entropy_threshold


def pilot_config(config: BranchingConfig, wanted: Wanted, number: float) -> BranchingConfig:
    """The settings that a pilot and the recommended runs share; ConfigError for an impossible wish.

    Every path may fork whatever its weight, so that a run can be resimulated at higher thresholds.
    The path limit is a safeguard, far above what is wanted.
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
    """The threshold of the pilot with the nearest mean; ConfigError if none has all prompts.

    Of several, the highest. The interval is for the mean over `check_seeds` other seeds and the
    same prompts, if seeds are about normally distributed.
    """
    points = setting_points(pilot, quantity("tokens"), quantity("paths"))
    if not points:
        raise ConfigError(
            "the pilot has no threshold yet at which every prompt ran; let it continue"
        )
    found = {
        point.config: {"paths": mean(point.gains), "tokens": mean(point.costs)} for point in points
    }

    def off(config: BranchingConfig) -> tuple[float, float]:
        return abs(found[config][wanted].value - number), -config.entropy_threshold

    best = min(found, key=off)
    means = {config.entropy_threshold: of[wanted].value for config, of in found.items()}
    return Recommendation(
        best,
        (wanted, number),
        _prediction(found[best]["paths"], check_seeds),
        _prediction(found[best]["tokens"], check_seeds),
        len({cell.prompt_id for cell in pilot}),
        found[best]["paths"].seeds,
        min(means.values()) <= number <= max(means.values()),
        _beyond(means, found[best][wanted].value, number),
    )


def _beyond(means: Mapping[float, float], best: float, number: float) -> tuple[float, float] | None:
    """The threshold and mean nearest to a number, on its other side from the best."""
    others = [entry for entry in means.items() if (entry[1] - number) * (best - number) < 0]
    return min(others, key=lambda entry: abs(entry[1] - number), default=None)


def _prediction(of: Mean, seeds: int) -> Prediction:
    margin = of.fresh(seeds)
    if margin is None:
        return Prediction(of.value, None, None)
    return Prediction(of.value, max(1.0, of.value - margin), of.value + margin)


def measured_means(cells: Iterable[Cell]) -> Mapping[Wanted, Mean]:
    """Mean paths and tokens of one setting over its seeds; empty before a seed is complete."""
    points = setting_points(cells, quantity("tokens"), quantity("paths"))
    if not points:
        return {}
    return {"paths": points[0].gain, "tokens": points[0].cost}
