"""Unbiased pruning to a path limit (Fearnhead and Clifford, 2003)."""

import math
from collections.abc import Sequence


def fearnhead_clifford(weights: Sequence[float], limit: int, uniform: float) -> list[float | None]:
    """Keep at most `limit` of the weights. Returns the new weights, with None for dropped ones. The
    expectation of each new weight is the old one.

    Let c be such that sum(min(1, w / c)) = limit. Weights of at least c remain as they are. The
    others are kept with probability w / c, by systematic resampling in the given order, and then
    weigh c. The sum of the weights does not change.

    Args:
        uniform: A random number in [0, 1).
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
        # Rounding must not add or lose a weight.
        reached = min(limit - kept, math.floor(share * (limit - kept) + uniform))
        if reached > picked:
            same = math.isclose(weights[index], c, rel_tol=1e-12)  # differs by rounding only
            result[index], picked = weights[index] if same else c, reached
    return result


def _threshold(descending: Sequence[float], limit: int) -> tuple[int, float]:
    """How many of the heaviest weights remain as they are, and c."""
    for kept in range(limit):
        c = math.fsum(descending[kept:]) / (limit - kept)
        if descending[kept] <= c * (1 - 1e-12):  # not if it equals c up to rounding
            return kept, c
    return limit, 0.0
