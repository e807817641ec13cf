"""Pruning to a path limit without bias (Fearnhead and Clifford, 2003)."""

import math
from collections.abc import Sequence


def fearnhead_clifford(weights: Sequence[float], limit: int, uniform: float) -> list[float | None]:
    """Keep `limit` of the weights: new weight, or None for a dropped one; the expectation of each
    is its old weight.

    With c such that sum(min(1, w / c)) = limit, weights of at least c stay as they are; the others
    are kept with probability w / c, by systematic resampling in the given order, and weigh c then.
    The sum does not change.
    """
    if len(weights) <= limit:
        return list(weights)
    order = sorted(range(len(weights)), key=lambda index: -weights[index])
    kept, c = _threshold([weights[index] for index in order], limit)
    result: list[float | None] = [None] * len(weights)
    for index in order[:kept]:
        result[index] = weights[index]
    light = sorted(index for index in order[kept:] if weights[index] > 0)
    light_total = math.fsum(weights[index] for index in light)
    seen, picked = 0.0, 0
    for index in light:
        seen += weights[index]
        share = 1.0 if index == light[-1] else seen / light_total
        reached = min(
            limit - kept, math.floor(share * (limit - kept) + uniform)
        )  # rounding must not add or lose one
        if reached > picked:
            same = math.isclose(weights[index], c, rel_tol=1e-12)  # not a new weight, only rounding
            result[index], picked = weights[index] if same else c, reached
    return result


def _threshold(descending: Sequence[float], limit: int) -> tuple[int, float]:
    """-> how many of the heaviest stay as they are, and c."""
    for kept in range(limit):
        c = math.fsum(descending[kept:]) / (limit - kept)
        if descending[kept] <= c * (1 - 1e-12):  # a weight that equals c but for rounding stays
            return kept, c
    return limit, 0.0
