"""AUROC, AURAC and the Brier score, by hand and by definition; bootstrap intervals."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eab.labs.tuning.evaluation_report import aurac, auroc, bootstrap
from eab.labs.tuning.measure import brier_score

PAIRS = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=12)


def arrays(pairs: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([float(score) for score, _ in pairs]), np.array([flag for _, flag in pairs])


def test_auroc_and_aurac_on_worked_examples() -> None:
    scores, wrong = arrays([(1, False), (2, True), (3, False), (4, True)])
    assert auroc(scores, wrong) == 0.75  # three of four pairs are in order
    assert aurac(scores, wrong) == pytest.approx((1 + 1 / 2 + 2 / 3 + 2 / 4) / 4)
    assert auroc(-scores, wrong) == 0.25
    assert auroc(np.zeros(4), wrong) == 0.5
    assert aurac(np.zeros(4), wrong) == pytest.approx(0.5)
    assert math.isnan(auroc(scores, np.zeros(4, dtype=bool)))


@given(PAIRS)
def test_auroc_is_the_share_of_pairs_in_order(pairs: list[tuple[int, bool]]) -> None:
    won = [
        1.0 if high > low else 0.5 if high == low else 0.0
        for high, wrong in pairs
        if wrong
        for low, other in pairs
        if not other
    ]
    value = auroc(*arrays(pairs))
    assert math.isnan(value) if not won else value == pytest.approx(np.mean(won))


@given(PAIRS)
def test_aurac_is_the_mean_over_random_orders_of_ties(pairs: list[tuple[int, bool]]) -> None:
    scores, wrong = arrays(pairs)
    generator = np.random.default_rng(0)
    found = []
    for _ in range(300):
        order = np.lexsort((generator.random(len(pairs)), scores))
        found.append((~wrong[order]).cumsum() / np.arange(1, len(pairs) + 1))
    assert aurac(scores, wrong) == pytest.approx(float(np.mean(found)), abs=0.1)


def test_an_interval_contains_its_value_and_is_reproducible() -> None:
    values = np.random.default_rng(3).normal(1.0, 1.0, 400)
    first = bootstrap(np.mean, values)
    assert first.low < first.value < first.high
    assert first.high - first.low == pytest.approx(2 * 1.96 / 20, rel=0.2)
    assert first.low > 0
    assert first == bootstrap(np.mean, values)
    assert first == bootstrap(np.mean, np.append(values, math.nan))  # a question not measured
    assert first.questions == 400
    assert not bootstrap(np.mean, np.array([math.nan])).is_known


@pytest.mark.parametrize(
    ("right", "wrong", "score"),
    [
        (1.0, [], 0.0),
        (0.7, [0.2, 0.1], 0.09 + 0.04 + 0.01),
        (0.0, [], 2.0),  # no answer was seen
        (0.6, [0.1], 0.16 + 0.01 + 0.09),  # the missing weight counts as one wrong answer
        (0.0, [0.5, 0.5], 1.5),  # the right answer was not seen
    ],
)
def test_the_brier_score_by_hand(right: float, wrong: list[float], score: float) -> None:
    assert brier_score(right, wrong) == pytest.approx(score)


@given(chance=st.floats(0, 1), weight=st.floats(0, 1))
def test_no_weights_score_better_on_average_than_the_true_probabilities(
    chance: float, weight: float
) -> None:
    def expected(told: float) -> float:
        """The mean score of a weight if the answer is right with this chance, else the other."""
        return chance * brier_score(told, [1 - told]) + (1 - chance) * brier_score(1 - told, [told])

    assert expected(chance) <= expected(weight) + 1e-12
