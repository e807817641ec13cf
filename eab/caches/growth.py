"""The cost model of allocation every r steps: copies at each growth against spare rows visited at
each step.

The tensors grow by R rows when they are full. Until then the spare rows are visited under the mask
(padded attention). With n rows in use a growth moves n rows and costs `copy_row * n + allocation`;
it happens every R / m steps if a step keeps m rows. Between growths (R - m) / 2 spare rows are
visited per step on average, for `spare_row` each. Per step:

    m (copy_row * n + allocation) / R  +  spare_row * (R - m) / 2

which is least at R* = sqrt(2 m (copy_row * n + allocation) / spare_row). Over N rows after a prompt
of P rows the mean of n is P + N / 2, hence the closed form below. For m = 1, P = 0 and free
allocations R* = sqrt(N * copy_row / spare_row), and the number of allocations N / R* grows with the
square root of N. Derived here; no constant is taken from the paper.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, TypeAlias

# (rows in use, paths, tokens of the pass) -> for how many decode steps the tensors should grow
GrowthRule: TypeAlias = Callable[[int, int, int], int]

SPARE_SHARE: Final = (
    4  # where spare rows cost memory only, they are at most a quarter of the rows in use
)
MOST_STEPS: Final = 4096


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds, over all layers, K and V.

    copy_row: to move one row in use into new tensors. allocation: of one growth, however many rows.
    spare_row: that one
    spare row adds to a pass of one token. spare_query: that it adds for each further token of the
    pass.
    """

    copy_row: float
    allocation: float
    spare_row: float
    spare_query: float = 0.0

    def visit(self, tokens: int) -> float:
        """Seconds that one spare row adds to a pass of so many tokens."""
        return self.spare_row + (tokens - 1) * self.spare_query


@dataclass(frozen=True, slots=True)
class Calibration:
    """The constants of the cost model, and the two sets of points that they were fitted to.

    copies: (rows in use, seconds of a growth). visits: (tokens, rows held, seconds of the KV part
    of a pass).
    """

    costs: CostModel
    copies: tuple[tuple[int, float], ...]
    visits: tuple[tuple[int, int, float], ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """A run to predict: `rows` are written after a prompt of `prompt` rows.

    kept: rows that stay per forward pass (paths, or accepted drafts and one). tokens: that go
        through the model per pass.
    """

    rows: int
    prompt: int = 0
    kept: float = 1.0
    tokens: int = 1


@dataclass(frozen=True, slots=True)
class GrowthCounts:
    """Exact counts of a run: growths, rows moved by them, and spare rows summed over the steps."""

    growths: int
    rows_copied: int
    spare_visits: int

    def seconds(self, costs: CostModel, tokens: int = 1) -> float:
        """The overhead that these counts cost."""
        return (
            costs.copy_row * self.rows_copied
            + costs.allocation * self.growths
            + costs.visit(tokens) * self.spare_visits
        )


def overhead(costs: CostModel, work: Workload, rows_ahead: float) -> float:
    """Seconds spent on copies, allocations and spare rows if the tensors grow by `rows_ahead` rows
    (the closed form)."""
    growths = work.rows / rows_ahead
    copied = growths * work.prompt + work.rows * (growths - 1) / 2
    spare = (work.rows / work.kept) * (rows_ahead - work.kept) / 2
    return costs.copy_row * copied + costs.allocation * growths + costs.visit(work.tokens) * spare


def best_rows(costs: CostModel, work: Workload) -> float:
    """R*: by how many rows the tensors should grow if the length is known; between one pass and all
    rows.
    """
    growth = costs.copy_row * (work.rows + 2 * work.prompt) + 2 * costs.allocation
    return _bounded(work.kept * growth, costs.visit(work.tokens), low=work.kept, high=work.rows)


def best_r(costs: CostModel, work: Workload) -> int:
    """r*: the same in decode steps."""
    return max(1, round(best_rows(costs, work) / work.kept))


def next_r(costs: CostModel, rows: int, paths: int, tokens: int) -> int:
    """r(n): for how many steps to grow at `rows` rows in use, if nobody knows how long the run will
    be.
    """
    growth = 2 * (costs.copy_row * rows + costs.allocation)
    return max(
        1,
        round(
            _bounded(paths * growth, costs.visit(tokens), low=paths, high=MOST_STEPS * paths)
            / paths
        ),
    )


def automatic(costs: CostModel | None) -> GrowthRule:
    """The rule of r = "auto". Without costs, spare rows are not visited: then grow by a share of
    the rows in use, so that copies stay proportional to the length and spare rows to the memory in
    use.
    """
    if costs is None:
        return lambda rows, paths, tokens: max(1, rows // (SPARE_SHARE * paths))
    return lambda rows, paths, tokens: next_r(costs, rows, paths, tokens)


def count(work: Workload, r: int | GrowthRule) -> GrowthCounts:
    """The exact counts of a run whose every step keeps `work.kept` (whole) rows, by going through
    it.
    """
    kept = int(work.kept)
    used = held = work.prompt
    growths = copied = spare = 0
    for _ in range(work.rows // kept):
        if used + kept > held:
            steps = r if isinstance(r, int) else r(used, kept, work.tokens)
            growths, copied, held = growths + 1, copied + used, held + steps * kept
        used += kept
        spare += held - used
    return GrowthCounts(growths, copied, spare)


def fit(
    copies: Sequence[tuple[int, float]],
    visits: Mapping[int, Sequence[tuple[int, float]]],
    most_tokens: int,
) -> CostModel:
    """The constants behind measured times.

    copies: (rows in use, seconds) of growths. visits: for passes of one token and of `most_tokens`,
        (rows held, seconds). The lines go through the medians of all pairs (Theil and Sen), so that
        a few disturbed measurements do not bend them.
    """
    allocation, copy_row = _line(copies)
    one, many = _line(visits[1])[1], _line(visits[most_tokens])[1]
    return CostModel(copy_row, allocation, one, max(0.0, many - one) / max(1, most_tokens - 1))


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """-> value at 0 and slope, neither below 0: time is not negative."""
    slope = statistics.median(
        (y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x1 != x2
    )
    slope = max(0.0, slope)
    return max(0.0, statistics.median(y - slope * x for x, y in points)), slope


def _bounded(growth: float, visit: float, low: float, high: float) -> float:
    """sqrt(growth / visit) within the bounds; costs that were measured as nothing, or less, decide
    at the bounds.
    """
    if growth <= 0:
        return low
    return min(max(math.sqrt(growth / visit), low), high) if visit > 0 else high
