"""Semantic entropy: worked examples, agreement with enumeration on explored trees, standard errors. Its
attribution to forks: contributions add up to the whole on any tree.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invented_runs import CARD, appended, invented_run, predicted
from made_runs import run_of
from saying_model import STOP, exact_answers, flat_run, saying_model

from eab.analysis.answer_rules import RULES
from eab.analysis.answers import entropy, group_answers
from eab.analysis.uncertainty import (
    attribute_to_forks,
    jackknife,
    semantic_entropy_of_runs,
    uncertainty,
)
from eab.config import BranchingConfig
from eab.engine.models.base import LanguageModel
from eab.run import RunState, fold
from eab.run.events import Event, Forked, PathFinished, RunStarted

LN2, LN3 = math.log(2), math.log(3)


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
    possible = 64 * math.log(CARD.vocab_size)  # ln of the number of texts of at most 64 tokens
    assert high == pytest.approx(1.5 * LN2 + 0.5 * possible)  # the unseen half over all of them
    assert (scores.texts, scores.reason) == (3, "")
    run = flat_run([("a", 0.3, 0.25, True), ("b", 0.3, 0.5, True), ("c", 0.4, 0.2, False)])
    scores = uncertainty(run, group_answers(run))
    assert scores.discrete == pytest.approx(LN2), "an undecided leaf does not count, but for"
    assert scores.semantic == pytest.approx(entropy([0.3, 0.3, 0.4])), "the fork before it"
    assert scores.predictive == pytest.approx(1.5 * LN2)
    assert group_answers(run).unfinished == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("texts", "policy", "reason"),
    [
        ([], "fair", "no text has an answer"),
        ([("a", 1.0, 0.5, False)], "fair", "no text has an answer"),
        ([("a", 0.5, 0.5, False), ("b", 0.5, 0.5, False)], "independent", "no text has an answer"),
        ([("a", 1.0, 0.5, True)], "fair", "only one text has an answer"),
        ([("a", 0.6, 0.5, True), ("b", 0.4, 0.4, False)], "fair", "only one text has an answer"),
        ([("a", 1.0, 1.0, True)], "fair", ""),  # there is nothing else
        ([("a", 0.5, 0.5, True)] * 2, "independent", ""),
    ],
)
def test_an_entropy_that_was_not_measured_is_none_with_a_reason(texts, policy, reason):
    run = flat_run(texts, policy)
    scores = uncertainty(run, group_answers(run))
    assert scores.reason == reason
    measured = (scores.semantic, scores.discrete, scores.rao_blackwellised)
    assert measured == ((None,) * 3 if reason else (pytest.approx(0.0, abs=1e-6),) * 3)
    assert (scores.predictive is None) == (scores.texts == 0)
    assert scores.semantic_bounds[0] == 0.0
    assert scores.semantic_bounds[1] > 10 or scores.explored == 1


@pytest.mark.parametrize("branch_factor", [2, 3])
def test_the_branch_factor_does_not_cap_the_entropy_where_a_fork_decides(branch_factor, embedded):
    """A die with six sides: every token is an answer, and the probabilities of all are known."""
    config = BranchingConfig(
        branch_factor=branch_factor, max_new_tokens=8, max_paths=12, entropy_threshold=0.5
    )
    run = run_of(embedded, "I rolled a die and got a", config)
    answers = group_answers(run, "sentence")
    scores = uncertainty(run, answers)
    assert scores.semantic == pytest.approx(math.log(6), abs=0.1)
    assert scores.semantic == pytest.approx(run.paths[0].fork_entropy)
    assert len(answers.ranked) <= branch_factor
    assert "branch_factor" in scores.limited_by
    assert answers.ranked[0].low == max(answer.low for answer in answers.ranked)


def test_a_fork_that_the_minimum_weight_prevents_is_a_limit(embedded: LanguageModel) -> None:
    config = BranchingConfig(max_new_tokens=12, max_paths=64, branch_factor=16)
    free = run_of(embedded, "I tossed three coins:", config)
    assert "min_fork_weight" not in uncertainty(free, group_answers(free)).limited_by
    held = run_of(embedded, "I tossed three coins:", config, min_fork_weight=0.4)
    assert uncertainty(held, group_answers(held)).limited_by == ("min_fork_weight",)


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
    assert semantic_entropy_of_runs([]).value is semantic_entropy_of_runs([one]).value is None
    assert semantic_entropy_of_runs([one, other], "text", RULES["content"]).value


def test_the_standard_error_is_the_spread_of_repeated_estimates() -> None:
    """For 40 draws from (0.7, 0.2, 0.1), the mean error is within 25% of the spread."""
    draws = np.random.default_rng(5).choice(3, size=(200, 40), p=[0.7, 0.2, 0.1])
    found = [jackknife([{int(answer): 1.0} for answer in row]) for row in draws]
    spread = np.std([one.value for one in found], ddof=1)
    assert np.mean([one.standard_error for one in found]) == pytest.approx(spread, rel=0.25)


@settings(max_examples=30)
@given(chain=st.integers(0, 10**6), length=st.integers(1, 2))
def test_all_estimates_are_exact_on_a_tree_whose_texts_have_all_been_explored(chain, length):
    model = saying_model(chain)
    config = BranchingConfig(
        entropy_threshold=0.0, branch_factor=STOP + 1, max_paths=256, max_new_tokens=length
    )
    run = run_of(model, "0", config)
    scores = uncertainty(run, group_answers(run))
    assert scores.predictive is not None
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
    low, high = scores.semantic_bounds
    if scores.reason:
        assert scores.semantic is scores.discrete is scores.rao_blackwellised is None
        return
    assert scores.semantic is not None
    assert low - 1e-9 <= scores.semantic <= high + 1e-9
    for value in (scores.discrete, scores.rao_blackwellised):
        assert value is not None
        assert 0 <= value <= math.log(max(1, len(answers.ranked))) + 1e-9
    assert scores.length_normalised is not None
    assert scores.predictive is not None
    assert 0 <= scores.length_normalised <= scores.predictive + 1e-12


# path: its parent, its weight, the text of its token
TREE = {
    1: (0, 0.6, " I think it is"),
    2: (0, 0.4, " It is"),
    3: (1, 0.3, " Paris"),
    4: (1, 0.3, " paris."),
    5: (2, 0.2, " Rome"),
    6: (2, 0.2, " Lyon"),
}


def two_level_run() -> RunState:
    """The first fork separates Paris from the rest. Below it, one fork words Paris, one decides."""
    events: list[Event] = [RunStarted("p", (0,), ("p",), CARD, BranchingConfig(), 1.0)]
    for step, parents in enumerate([(0,), (1, 2)]):
        for parent in parents:
            born = tuple(path for path, (its_parent, *_) in TREE.items() if its_parent == parent)
            weights = tuple(TREE[path][1] for path in born)
            fork = Forked(step, parent, born, weights, born[0])
            events += [predicted(step, parent, 1.0), fork]
            for path in born:
                share = TREE[path][1] / math.fsum(weights)
                events.append(appended(step, path, path, TREE[path][2], math.log(share)))
    return fold([*events, *(PathFinished(1, path, "stop") for path in (3, 4, 5, 6))])


def test_a_worked_example() -> None:
    """One branch of the first fork leads only to two wordings of Paris."""
    run = two_level_run()
    last_word = group_answers(
        run, "text", lambda _, one, other: RULES["exact"]("", one.split()[-1], other.split()[-1])
    )
    assert [one.estimate for one in last_word.ranked] == pytest.approx([0.6, 0.2, 0.2])
    first, below, wording = attribute_to_forks(run, last_word)
    assert (first.path, below.path, wording.path) == (0, 2, 1)
    assert first.information == pytest.approx(entropy([0.6, 0.4]))
    assert first.contribution == 1.0  # all of the entropy of its tokens
    assert first.decisiveness == pytest.approx(1.0)
    assert below.weight == pytest.approx(0.4)
    assert below.information == pytest.approx(math.log(2))
    assert (wording.weight, wording.branch_entropy) == pytest.approx((0.6, math.log(2)))
    assert wording.contribution == pytest.approx(0.0)
    assert wording.decisiveness == pytest.approx(0.0)


def test_a_branch_without_an_answer_is_ignored() -> None:
    run = flat_run([("a", 0.5, 0.5, True), ("b", 0.5, 0.4, False)])
    assert attribute_to_forks(run, group_answers(run)) == ()


@given(st.integers(0, 500), st.integers(0, 20), st.integers(1, 12), st.floats(0, 1))
def test_the_contributions_add_up_in_any_run_even_after_pruning(seed, steps, paths, until):
    events = invented_run(seed, steps, paths)
    run = fold(events[: max(1, int(until * len(events)))])
    for part in ("text", "sentence"):
        answers = group_answers(run, part)
        forks = attribute_to_forks(run, answers)
        total = math.fsum(fork.weight * fork.information for fork in forks)
        weights = [sum(run.paths[leaf].weight for leaf in one.leaves) for one in answers.ranked]
        assert total == pytest.approx(entropy(weights), abs=1e-9)
        assert all(0 <= fork.weight <= 1 + 1e-9 for fork in forks)
        assert all(0 <= fork.information <= fork.branch_entropy + 1e-9 for fork in forks)
