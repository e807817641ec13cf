"""Whether the weights of answers can be believed."""

import math
from collections.abc import Sequence


def brier_score(right: float, wrong: Sequence[float]) -> float:
    """The Brier score of weights of answers: the sum of (weight - [the answer is right])².

    It is proper: the best weights are the probabilities that one believes. From 0, all weight on
    the right answer, to 2, all on one wrong answer.

    Source: G. W. Brier, Verification of forecasts expressed in terms of probability, Monthly
    Weather Review 78 (1950), 1-3.

    Args:
        right: The weight of all right answers, 0 to 1.
        wrong: The weight of each other answer. What is missing to a sum of 1 counts as one more.
    """
    unseen = max(0.0, 1.0 - math.fsum([right, *wrong]))
    return math.fsum([(1.0 - right) ** 2, unseen**2, *(weight**2 for weight in wrong)])
