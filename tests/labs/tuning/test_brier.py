"""The Brier score, by hand and by what makes it a proper score."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eab.labs.tuning.scores import brier_score


@pytest.mark.parametrize(
    ("right", "wrong", "score"),
    [
        (1.0, [], 0.0),
        (0.0, [1.0], 2.0),
        (0.5, [0.5], 0.5),
        (0.25, [0.25, 0.25, 0.25], 0.75),
        (0.7, [0.2, 0.1], 0.09 + 0.04 + 0.01),
        (0.0, [], 2.0),  # nothing was seen
        (0.6, [0.1], 0.16 + 0.01 + 0.09),  # what is missing is a wrong answer of its own
        (0.0, [0.5, 0.5], 1.5),  # the right answer was not seen
    ],
)
def test_the_score_by_hand(right: float, wrong: list[float], score: float) -> None:
    assert brier_score(right, wrong) == pytest.approx(score)


@given(chance=st.floats(0, 1), weight=st.floats(0, 1))
def test_no_weights_do_better_on_average_than_the_true_probabilities(
    chance: float, weight: float
) -> None:
    def expected(told: float) -> float:
        """The mean score if the answer is right with this chance, else the other one is."""
        return chance * brier_score(told, [1 - told]) + (1 - chance) * brier_score(1 - told, [told])

    assert expected(chance) <= expected(weight) + 1e-12


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_it_lies_between_0_and_2(masses: list[float]) -> None:
    scale = max(1.0, sum(masses))
    right, *wrong = [mass / scale for mass in masses]
    assert -1e-12 <= brier_score(right, wrong) <= 2 + 1e-12
