"""Which settings gain the most at the least cost, against independent sampling at equal cost; and a
threshold for a target number of paths or tokens.

Values of different prompts under one seed share random numbers, so the prompts are averaged first.
The standard error comes from the spread between seeds.

A threshold is recommended from a sweep over thresholds, the pilot, which runs the user's own
prompts with a few seeds. It is always one that was tried; nothing is interpolated.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Literal

from eab.analysis.run_comparison import Mean, mean, paired_difference
from eab.config import MAX_PATHS, SETTINGS, BranchingConfig
from eab.errors import ConfigError
from eab.labs.tuning.grid import COSTS, PATHS, WITHOUT_EFFECT, Cell, Quantity

BASELINE: Final = "independent"  # the policy of ordinary sampling


@dataclass(frozen=True, slots=True)
class SettingPoint:
    """A setting of a sweep, with its costs and gains."""

    config: BranchingConfig  # the settings; their seed is 0
    costs: Mapping[int, float]  # mean cost over the prompts, by seed
    gains: Mapping[int, float]  # mean gain over the prompts, by seed
    cells: int

    @property
    def cost(self) -> Mean:
        """The mean cost over the seeds."""
        return mean(self.costs)

    @property
    def gain(self) -> Mean:
        """The mean gain over the seeds."""
        return mean(self.gains)

    @property
    def is_baseline(self) -> bool:
        """Whether the setting is independent sampling."""
        return self.config.policy == BASELINE


def setting_of(cell: Cell) -> BranchingConfig:
    """The settings of a cell, with seed 0."""
    return replace(cell.config, seed=0)


def varying(configs: Iterable[BranchingConfig]) -> list[str]:
    """The names of the settings that differ, without the seed and settings without effect."""
    seen = list(configs)
    return [
        name
        for name in SETTINGS
        if name != "seed"
        and len({getattr(config, name) for config in seen if has_effect(name, config)}) > 1
    ]


def has_effect(name: str, config: BranchingConfig) -> bool:
    """Whether this setting has an effect under the policy of `config`."""
    return name not in WITHOUT_EFFECT.get(config.policy, frozenset())


def setting_points(
    cells: Iterable[Cell], cost: Quantity, gain: Quantity, partial: bool = False
) -> list[SettingPoint]:
    """One point per setting, sorted by setting values, over the prompts whose gain is known.

    Settings are compared on the same prompts: a seed counts only when every prompt has a cell for
    it, unless `partial`, for a chart that fills in. Costs must be known for every run.
    """
    cells = list(cells)
    prompts = {cell.prompt_id for cell in cells if measured(cell, gain) is not None}
    grouped: defaultdict[BranchingConfig, defaultdict[int, dict[str, Cell]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for cell in cells:
        if cell.prompt_id in prompts and None not in (measured(cell, cost), measured(cell, gain)):
            grouped[setting_of(cell)][cell.seed][cell.prompt_id] = cell
    points = (
        _point(config, seeds, 1 if partial else len(prompts), cost, gain)
        for config, seeds in grouped.items()
    )
    return sorted((point for point in points if point is not None), key=_order)


def _order(point: SettingPoint) -> tuple[str, float, int, int, str]:
    config = point.config
    first = (config.policy, config.entropy_threshold, config.branch_factor, config.max_paths)
    return (*first, repr(config))


def _point(
    config: BranchingConfig,
    seeds: Mapping[int, Mapping[str, Cell]],
    least: int,
    cost: Quantity,
    gain: Quantity,
) -> SettingPoint | None:
    complete = {seed: list(cells.values()) for seed, cells in seeds.items() if len(cells) >= least}
    if not complete:
        return None
    return SettingPoint(
        config,
        {seed: _average(cells, cost) for seed, cells in complete.items()},
        {seed: _average(cells, gain) for seed, cells in complete.items()},
        sum(map(len, complete.values())),
    )


def measured(cell: Cell, quantity: Quantity) -> float | None:
    """The value of a quantity in a cell; None if it is not known."""
    value: Any = getattr(cell, quantity.column)
    return None if value is None else float(value)


def _average(cells: Sequence[Cell], quantity: Quantity) -> float:
    values = [measured(cell, quantity) for cell in cells]
    return math.fsum(value for value in values if value is not None) / len(values)


def pareto_front(points: Iterable[SettingPoint], gain: Quantity) -> list[SettingPoint]:
    """The points that no other point's means dominate, cheapest first; see `beats` for noise."""
    sign = 1.0 if gain.more_is_better else -1.0
    ranked = sorted(points, key=lambda point: (point.cost.value, -sign * point.gain.value))
    front: list[SettingPoint] = []
    for point in ranked:
        last = front[-1] if front else None
        better = last is None or sign * point.gain.value > sign * last.gain.value
        same = last is not None and _place(point) == _place(last)
        if better or same:
            front.append(point)
    return front


def _place(point: SettingPoint) -> tuple[float, float]:
    return point.cost.value, point.gain.value


def baseline(points: Iterable[SettingPoint]) -> list[SettingPoint]:
    """The points of independent sampling, cheapest first; one point per cost."""
    by_cost = {point.cost.value: point for point in points if point.is_baseline}
    return [by_cost[cost] for cost in sorted(by_cost)]


def beyond_baseline(point: SettingPoint, line: Sequence[SettingPoint]) -> Mean | None:
    """How much more a setting gains than independent sampling at the same mean cost.

    The baseline is interpolated over the logarithm of the cost, where it is closer to a straight
    line. It is never extrapolated: None outside its range. The difference is paired by seed.
    """
    cost = point.cost.value
    for exact in line:
        if exact.cost.value == cost:
            return paired_difference(point.gains, exact.gains)
    for low, high in pairwise(line):
        if low.cost.value < cost < high.cost.value:
            return paired_difference(point.gains, _between(low, high, cost))
    return None


def _between(low: SettingPoint, high: SettingPoint, cost: float) -> dict[int, float]:
    share = math.log(cost / low.cost.value) / math.log(high.cost.value / low.cost.value)
    return {
        seed: (1 - share) * gained + share * high.gains[seed]
        for seed, gained in low.gains.items()
        if seed in high.gains
    }


def beats(ours: SettingPoint, theirs: SettingPoint, gain: Quantity) -> bool | None:
    """Whether one setting is better than another; None if the difference is within the noise."""
    difference = paired_difference(ours.gains, theirs.gains)
    if difference is None or not difference.excludes_zero:
        return None
    return (difference.value > 0) == gain.more_is_better


def best_setting(points: Iterable[SettingPoint], gain: Quantity) -> SettingPoint:
    """The cheapest setting on the front that is not measurably worse than the best gain there."""
    front = pareto_front(points, gain)
    return next(point for point in front if beats(front[-1], point, gain) is None)


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
            (f"{name.capitalize()} per run", _brief(mean.value), _interval_text(mean))
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


def _interval_text(mean: Mean) -> str:
    ends = interval(mean)
    return "" if ends is None else f"{_brief(ends[0])} to {_brief(ends[1])}"


def _brief(number: float) -> str:
    return f"{number:,.0f}" if number >= 9.95 else f"{number:.1f}".removesuffix(".0")
