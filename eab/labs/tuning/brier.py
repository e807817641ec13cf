"""Whether the weights of answers can be believed."""

import math
from collections.abc import Sequence


def brier_score(right: float, wrong: Sequence[float]) -> float:
    """The Brier score of the weights of answers: the sum of (weight - [the answer is right])².

    It is a proper score: the best weights to give are the probabilities that one believes. It falls
    as weights become better calibrated, and as they become more decided while they stay so.

    Source: G. W. Brier, Verification of forecasts expressed in terms of probability, Monthly
    Weather Review 78 (1950), 1-3.

    Args:
        right: The weight (0 to 1) of the right answer; of several right ones, their sum; 0 if none
            was seen.
        wrong: The weight of each other answer. What is missing to a sum of 1 stands for what was
            not seen, and counts as one more wrong answer.

    Returns:
        0 if all weight is on the right answer, up to 2 if all is on one that is wrong.
    """
    unseen = max(0.0, 1.0 - math.fsum([right, *wrong]))
    return math.fsum([(1.0 - right) ** 2, unseen**2, *(weight**2 for weight in wrong)])
