"""When to reallocate the KV tensors: the growth step r and its cost model.

When the tensors are full, they grow by the rows of r decode steps. A large r means few copies,
but many spare rows (slack capacity); r = 1 means no spare rows, but a copy at every step. With
r = "auto" they grow by a share of the rows in use (`growth_step`).

The cost model is for padded attention, which visits the spare rows under the mask, and for runs
whose length is known; the BMC laboratory measures its constants. The tensors grow by R rows when
they are full. With n rows in use, one growth copies n rows and takes `copy_row * n + allocation`;
if a step keeps m rows, it happens every R / m steps. Between two growths, (R - m) / 2 spare rows
are visited per step on average, for `spare_row` each. Per step:

    m (copy_row * n + allocation) / R  +  spare_row * (R - m) / 2

The minimum is at R* = sqrt(2 m (copy_row * n + allocation) / spare_row). Over N rows after a prompt
of P rows, the mean of n is P + N / 2; this gives the closed form of `best_rows`. For m = 1, P = 0
and free allocations, R* = sqrt(N * copy_row / spare_row), and the number of allocations N / R*
grows with the square root of N. The formulas are derived here; no constant is taken from the paper
(BMC, arXiv 2511.12031).
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from eab.config import AUTO, AllocationStep

# With r = "auto", a growth adds 1 / SLACK_DIVISOR of the used rows, or LEAST_STEPS steps if more.
SLACK_DIVISOR: Final = 4
LEAST_STEPS: Final = 4
# Tensors shrink by more rows than this.
LEAST_GIVEN_BACK: Final = 512
# Kernels work in blocks of rows: attention over 255 rows takes longer than over 256.
ROW_BLOCK: Final = 16


@dataclass(frozen=True, slots=True)
class CostModel:
    """Constants in seconds, over all layers, K and V together."""

    copy_row: float  # to copy one row in use into new tensors
    allocation: float  # of one growth, whatever the number of rows
    spare_row: float  # what one spare row adds to a forward pass of one token
    spare_query: float = 0.0  # what one spare row adds for each further token of the forward pass

    def spare_row_seconds(self, tokens: int) -> float:
        """Seconds that one spare row adds to a forward pass of `tokens` tokens."""
        return self.spare_row + (tokens - 1) * self.spare_query


@dataclass(frozen=True, slots=True)
class CacheWorkload:
    """A run whose best growth step is to be predicted."""

    rows: int  # rows written after the prompt
    prompt: int = 0
    # Rows that remain per forward pass: one per path, or the accepted draft tokens and one more
    kept: float = 1.0
    tokens: int = 1  # tokens that go through the model per forward pass


def best_rows(costs: CostModel, work: CacheWorkload) -> float:
    """R*: by how many rows the tensors should grow if the length of the run is known; at least the
    rows of one forward pass, at most all rows.
    """
    growth = costs.copy_row * (work.rows + 2 * work.prompt) + 2 * costs.allocation
    return _bounded_sqrt(
        work.kept * growth, costs.spare_row_seconds(work.tokens), low=work.kept, high=work.rows
    )


def best_r(costs: CostModel, work: CacheWorkload) -> int:
    """r*: the same as `best_rows`, in decode steps."""
    return max(1, round(best_rows(costs, work) / work.kept))


def in_whole_blocks(r: int) -> int:
    """r, rounded up so that the tensors grow by whole blocks, if r is at least a block."""
    return r if r < ROW_BLOCK else ROW_BLOCK * math.ceil(r / ROW_BLOCK)


def growth_step(r: AllocationStep, rows: int, paths: int) -> int:
    """The number of decode steps of `paths` paths for which tensors with `rows` used rows grow.

    "auto" is a share of the rows in use, so the copied rows stay proportional to the length, and
    the spare rows to the memory in use. Without LEAST_STEPS, short runs of many paths would grow at
    nearly every step: 23 times in 48 steps of 20 paths.
    """
    if r == AUTO:
        return max(LEAST_STEPS, rows // (SLACK_DIVISOR * paths))
    return r


def should_shrink(held: int, used: int, needed: int) -> bool:
    """Whether tensors of `held` rows should shrink because paths ended: by more than
    LEAST_GIVEN_BACK, they exceed both twice the `used` rows and `needed`, those for a growth step.
    """
    return held - max(2 * used, needed) > LEAST_GIVEN_BACK


def fit_cost_model(
    copies: Sequence[tuple[int, float]],
    visits: Mapping[int, Sequence[tuple[int, float]]],
    max_tokens: int,
) -> CostModel:
    """Fit the constants with Theil-Sen regression, so that a few outliers do not change them.

    Args:
        copies: Growths: (rows in use, seconds).
        visits: For forward passes of 1 and of `max_tokens` tokens: (rows held, seconds).
        max_tokens: Tokens of the larger forward passes.
    """
    allocation, copy_row = _theil_sen(copies)
    single, many = _theil_sen(visits[1])[1], _theil_sen(visits[max_tokens])[1]
    return CostModel(copy_row, allocation, single, max(0.0, many - single) / max(1, max_tokens - 1))


def _theil_sen(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Intercept and slope: medians over all pairs of points. Times are not negative, so neither
    result is below 0.
    """
    slope = statistics.median(
        (y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x1 != x2
    )
    slope = max(0.0, slope)
    return max(0.0, statistics.median(y - slope * x for x, y in points)), slope


def _bounded_sqrt(growth: float, visit: float, low: float, high: float) -> float:
    """sqrt(growth / visit) within the bounds; a cost measured as 0 or less gives a bound."""
    if growth <= 0:
        return low
    return min(max(math.sqrt(growth / visit), low), high) if visit > 0 else high
