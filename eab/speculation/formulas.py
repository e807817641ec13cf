"""What speculation should bring, in formulas. Pure Python.

alpha: probability that a guess is right if those before it were, the same for all guesses (an
assumption). length: guesses per pass. Leviathan, Kalman, Matias (2023), arXiv 2211.17192; their
gamma is `length`.
"""

from collections.abc import Callable

from eab.config import MAX_DRAFT


def expected_tokens(alpha: float, length: int) -> float:
    """Tokens that a pass confirms on a single path, (1 - alpha^(length + 1)) / (1 - alpha);
    equation 1.
    """
    return sum(alpha**guess for guess in range(length + 1))


def speed_up(
    alpha: float, length: int, draft_cost: float, pass_cost: Callable[[int], float]
) -> float:
    """Time of plain decoding over that with guesses, for a single path.

    draft_cost: a guess, in passes of one token. pass_cost: a pass of so many tokens, likewise;
    theorem 3.8 takes it to be 1, which no CPU does.
    """
    return expected_tokens(alpha, length) / (length * draft_cost + pass_cost(length + 1))


def best_length(alpha: float, draft_cost: float, pass_cost: Callable[[int], float]) -> int:
    """The length up to MAX_DRAFT that is fastest; 0 if guessing does not pay."""
    return max(
        range(MAX_DRAFT + 1), key=lambda length: speed_up(alpha, length, draft_cost, pass_cost)
    )
