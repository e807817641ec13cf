"""The expected gain from speculation, in formulas. Pure Python.

`alpha` is the probability that a draft token is accepted if those before it were; it is assumed to
be the same for all draft tokens. `length` is the number of draft tokens per pass. From Leviathan,
Kalman, Matias (2023), arXiv 2211.17192, who call the length gamma.
"""

from collections.abc import Callable

from eab.config import MAX_DRAFT


def expected_tokens(alpha: float, length: int) -> float:
    """Expected tokens per pass on a single path, (1 - alpha^(length + 1)) / (1 - alpha).

    Equation 1 of the paper.
    """
    return sum(alpha**index for index in range(length + 1))


def speed_up(
    alpha: float, length: int, draft_cost: float, pass_cost: Callable[[int], float]
) -> float:
    """Time of plain decoding divided by the time with speculation, for a single path.

    Args:
        draft_cost: Time of one draft token, relative to a pass of one token.
        pass_cost: Number of tokens in a pass -> its time, relative to a pass of one token. Theorem
            3.8 of the paper assumes 1, which does not hold on any CPU.
    """
    return expected_tokens(alpha, length) / (length * draft_cost + pass_cost(length + 1))


def best_length(alpha: float, draft_cost: float, pass_cost: Callable[[int], float]) -> int:
    """The fastest length, at most MAX_DRAFT; 0 if speculation does not pay off."""
    return max(
        range(MAX_DRAFT + 1), key=lambda length: speed_up(alpha, length, draft_cost, pass_cost)
    )
