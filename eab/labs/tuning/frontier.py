"""Which settings gain the most at the least cost, against independent sampling at equal cost.

Means over seeds have Student's t intervals. Values of different prompts under one seed share random
numbers, so the prompts are averaged first. The standard error comes from the spread between seeds.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any, Final

from eab.analysis.uncertainty import student
from eab.config import SETTINGS, BranchingConfig
from eab.labs.tuning.cell import Cell, Quantity
from eab.labs.tuning.grid import WITHOUT_EFFECT


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
