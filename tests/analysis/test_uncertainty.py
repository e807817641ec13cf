"""Semantic entropy: worked examples, agreement with enumeration on explored trees, standard errors."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invented_runs import CARD, invented_run
from made_runs import run_of
from saying_model import STOP, exact_answers, flat_run, saying_model

from eab.analysis.answers import Answers, entropy, group_answers
from eab.analysis.same_answer import RULES
from eab.analysis.uncertainty import jackknife, semantic_entropy_of_runs, uncertainty
from eab.config import BranchingConfig
from eab.events import RunStarted
from eab.run import RunState, fold

LN2, LN3 = math.log(2), math.log(3)
DRAWS = 200  # in the test of the standard error


def test_the_estimators_on_a_worked_example() -> None:
    """Paris has two texts, weight 3/4 and seen probability 1/4; Rome has one text, 1/4 and 1/4."""
    run = flat_run(
        [("Paris", 0.5, 0.125, True), (" paris.", 0.25, 0.125, True), ("Rome", 0.25, 0.25, True)]
    )
    scores = uncertainty(run, group_answers(run))
    assert scores.semantic == pytest.approx(2 * LN2 - 0.75 * LN3)
    assert scores.discrete == pytest.approx(LN3 - 2 / 3 * LN2)
    assert scores.rao_blackwellised == pytest.approx(LN2)
    assert scores.predictive == pytest.approx((0.5 * 3 + 0.25 * 3 + 0.25 * 2) * LN2)
    assert scores.length_normalised == pytest.approx(scores.predictive)  # one token each
    assert scores.explored == pytest.approx(0.5)
    assert scores.standard_error is None
    low, high = scores.semantic_bounds
    assert low == pytest.approx(2 * LN2 - 0.75 * LN3)  # for 3/4 and 1/4
    assert high == pytest.approx(LN3)  # the unseen half makes all three equal


def test_undecided_leaves_are_left_out() -> None:
    run = flat_run([("a", 0.3, 0.25, True), ("b", 0.3, 0.5, True), ("c", 0.4, 0.2, False)])
    scores = uncertainty(run, group_answers(run))
    assert scores.semantic == pytest.approx(LN2)
    assert scores.predictive == pytest.approx(1.5 * LN2)


def test_without_answers_all_scores_are_zero() -> None:
    run = RunState(RunStarted("p", (0,), ("p",), CARD, BranchingConfig(), 1.0))
    scores = uncertainty(run, group_answers(run))
    assert scores == uncertainty(run, Answers((), (0,), 0.0))
    assert (scores.semantic, scores.predictive, scores.explored) == (0.0, 0.0, 0.0)


def test_independent_texts_have_a_standard_error() -> None:
    """Leaving one out of a, a, b, b always gives counts (2, 1), so there is no spread. Leaving one
    out of a, a, a, b gives (2, 1) three times and (3, 0) once.
    """
    even = [(text, 0.25, 0.5, True) for text in "aabb"]
    run = flat_run(even, "independent")
    assert uncertainty(run, group_answers(run)).standard_error == pytest.approx(0.0)
    uneven = flat_run([(text, 0.25, 0.5, True) for text in "aaab"], "independent")
    each = LN3 - 2 / 3 * LN2
    expected = math.sqrt(3 / 4 * (3 * (each / 4) ** 2 + (3 * each / 4) ** 2))
    assert uncertainty(uneven, group_answers(uneven)).standard_error == pytest.approx(expected)


def test_runs_are_pooled_before_they_are_grouped() -> None:
    """Two runs of different size count equally; "Paris" of one equals "paris." of the other."""
    one = flat_run([("Paris", 1.0, 0.5, True)])
    other = flat_run(
        [(" paris.", 0.4, 0.3, True), ("Rome", 0.4, 0.3, True), ("x", 0.2, 0.1, False)]
    )
    estimate = semantic_entropy_of_runs([one, other])
    assert estimate.value == pytest.approx(entropy([0.75, 0.25]))
    assert estimate.standard_error == pytest.approx(LN2 / 2)  # leaving out one run gives 0 or ln 2
    assert semantic_entropy_of_runs([other]).standard_error is None
    assert semantic_entropy_of_runs([]).value == 0.0
    assert semantic_entropy_of_runs([one, other], "text", RULES["content"]).value > 0


def test_the_standard_error_is_the_spread_of_repeated_estimates() -> None:
    """For 40 draws from (0.7, 0.2, 0.1), the mean error is within 25% of the spread."""
    draws = np.random.default_rng(5).choice(3, size=(DRAWS, 40), p=[0.7, 0.2, 0.1])
    found = [jackknife([{int(answer): 1.0} for answer in row]) for row in draws]
    spread = float(np.std([one.value for one in found], ddof=1))
    errors = [one.standard_error for one in found if one.standard_error is not None]
    assert len(errors) == DRAWS
    assert float(np.mean(errors)) == pytest.approx(spread, rel=0.25)


@settings(max_examples=30)
@given(chain=st.integers(0, 10**6), length=st.integers(1, 2))
def test_all_estimates_are_exact_on_a_tree_whose_texts_have_all_been_explored(
    chain: int, length: int
) -> None:
    model = saying_model(chain)
    config = BranchingConfig(
        entropy_threshold=0.0,
        branch_factor=STOP + 1,
        max_paths=256,
        max_new_tokens=length,
    )
    run = run_of(model, "0", config)
    scores = uncertainty(run, group_answers(run))
    truth = entropy(list(exact_answers(model, length).values()))
    assert scores.semantic == pytest.approx(truth, abs=1e-6)
    assert scores.rao_blackwellised == pytest.approx(truth, abs=1e-6)
    low, high = scores.semantic_bounds
    assert low - 1e-6 <= truth <= high + 1e-6
    texts = [mass for _, mass in model.all_texts(0, length)]
    assert scores.predictive == pytest.approx(entropy(texts), abs=1e-6)


@given(st.integers(0, 500), st.integers(0, 20), st.integers(1, 12))
def test_scores_of_any_run_are_finite_and_ordered(seed: int, steps: int, paths: int) -> None:
    run = fold(invented_run(seed, steps, paths))
    answers = group_answers(run, "sentence")
    scores = uncertainty(run, answers)
    for value in (scores.semantic, scores.discrete, scores.rao_blackwellised):
        assert 0 <= value <= math.log(max(1, len(answers.ranked))) + 1e-9
    assert 0 <= scores.length_normalised <= scores.predictive + 1e-12
