"""What the policies promise about texts and weights: weights sum to 1 at every step, and means over
many seeds are those that numpy computes from the probabilities of a chain. Pruning keeps the sum and
has no bias, and a higher threshold gives a subtree while no limit acts.
"""

import itertools
import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from estimates import (
    CASES,
    CASES_AND_SEEDS,
    FUNCTIONALS,
    Case,
    assert_unbiased,
    standard_errors_off,
    weighted,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_runs import events_of, run_of
from numpy.typing import NDArray
from policies import EVERY, FORKING
from stepping import Sample, samples_of

from eab.config import BranchingConfig
from eab.engine.branching.fair import fearnhead_clifford
from eab.engine.branching.random_streams import ROOT
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import RunState, fold
from eab.run.events import LimitActed, StepTimed


@settings(max_examples=40)
@given(
    chain=st.integers(0, 10**6),
    size=st.integers(2, 7),
    concentration=st.sampled_from([0.1, 0.6, 3.0]),
    stops=st.sets(st.integers(0, 6), max_size=2),
    config=st.builds(
        BranchingConfig,
        entropy_threshold=st.floats(0.0, 1.6),
        branch_factor=st.integers(2, 6),
        max_paths=st.integers(1, 12),
        min_fork_weight=st.sampled_from([0.0, 0.1, 1.0]),
        branch_min_p=st.sampled_from([0.0, 0.2, 1.0]),
        max_new_tokens=st.just(8),
        policy=st.sampled_from(["fair", *FORKING]),
        seed=st.integers(0, 2**63 - 1),
    ),
)
def test_after_every_step_the_weights_of_the_leaves_sum_to_one(
    chain, size, concentration, stops, config
):
    model = TableModel(random_table(chain, size, concentration), sorted(stops))
    started, *events = events_of(model, "0", config)
    run = RunState(started)
    for event in events:
        run.apply(event)
        if isinstance(event, StepTimed):
            leaves = run.leaves()
            total = math.fsum(leaf.weight for leaf in leaves)
            if config.policy in ("beam", "best-first"):  # the rest is known to be unexplored
                assert total <= 1 + 1e-9
                assert len(leaves) <= 2 * config.max_paths
            else:
                assert total == pytest.approx(1, abs=1e-9)
            assert all(leaf.weight > 0 for leaf in leaves)
            if config.policy not in ("original", "beam"):
                assert len(leaves) <= config.max_paths
                assert sum(leaf.heir for leaf in leaves) <= len(leaves)
    assert_leaves_are_distinct_with_exact_log_probs(run, model)


def assert_leaves_are_distinct_with_exact_log_probs(run: RunState, model: TableModel) -> None:
    samples = run.samples
    assert len({sample.token_ids for sample in samples}) == len(samples)
    for sample in samples:
        before = (0, *sample.token_ids)
        steps = enumerate(zip(before, sample.token_ids, strict=False))
        exact = math.fsum(math.log(model.next(last, step)[token]) for step, (last, token) in steps)
        assert sample.log_prob == pytest.approx(exact, abs=1e-9)
        entropies = [
            -math.fsum(p * math.log(p) for p in model.next(last, step) if p > 0)
            for step, last in enumerate(before[:-1])
        ]
        assert sample.entropies == pytest.approx(entropies, abs=1e-9)


@pytest.mark.parametrize("policy", EVERY)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_samples_drawn_without_the_engine_equal_those_of_the_engine(policy, case):
    config = case.config(policy, seed=1)
    run = run_of(case.model, "0", config)
    expected = sorted((sample.token_ids, sample.weight) for sample in run.samples)
    found = sorted((text, leaf.weight) for text, leaf in samples_of(case.model, config)[0])
    assert [text for text, _ in found] == [text for text, _ in expected]
    weights = [weight for _, weight in expected]
    assert [weight for _, weight in found] == pytest.approx(weights, abs=1e-12)


def estimates(case: Case, policy: str, seeds: range) -> list[list[float]]:
    """The weighted sum of each functional over the texts of one run, for each seed."""
    return [
        weighted([(text, leaf.weight) for text, leaf in samples])
        for samples, _ in case.runs(policy, seeds)
    ]


@pytest.mark.parametrize("policy", ["fair", "arithmetic", "independent"])
@pytest.mark.parametrize(("case", "seeds"), CASES_AND_SEEDS)
def test_weighted_averages_are_unbiased(policy, case, seeds):
    assert_unbiased(estimates(case, policy, seeds), weighted(case.texts()))


@pytest.mark.parametrize(("case", "seeds"), CASES_AND_SEEDS)
def test_independent_texts_are_independent(case, seeds):
    """The mean product over all pairs of distinct samples is the product of the expectations."""

    def pairs(samples: list[Sample]) -> list[float]:
        values = np.array([[f(text) for text, _ in samples] for f in FUNCTIONALS.values()])
        count = values.shape[1]
        products = values.sum(axis=1) ** 2 - (values**2).sum(axis=1)
        return list(products / (count * (count - 1)))

    several = replace(case, settings=case.settings | {"max_paths": max(2, case.max_paths)})
    products = [pairs(samples) for samples, _ in several.runs("independent", seeds)]
    assert_unbiased(products, np.square(weighted(case.texts())))


def children_of_original(case: Case) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each token's chance to be a child of the first fork, and to be its heir.

    The children are drawn without replacement: as many as there are paths left, at most the branch
    factor. If none is left, two are drawn and the likelier one stays.
    """
    p, config = case.exact.next(0, 0), case.config("original")
    possible = [token for token in range(len(p)) if p[token] > 0]
    left = case.max_paths - 1
    count = min(left or 2, config.branch_factor, len(possible))
    if -sum(p[token] * math.log(p[token]) for token in possible) < config.entropy_threshold:
        count = 1
    child, heir = np.zeros(len(p)), np.zeros(len(p))
    for order in permutations(possible, count):
        chance, rest = 1.0, 1.0
        for token in order:
            chance *= p[token] / rest
            rest -= p[token]
        kept = sorted(order, key=lambda token: -p[token])[: case.max_paths]
        child[kept] += chance
        heir[order[0]] += chance * (order[0] in kept)
    return child, heir


@pytest.mark.parametrize(("case", "seeds"), CASES_AND_SEEDS)
def test_the_original_rule_draws_the_children_of_a_fork_without_replacement(case, seeds):
    first = replace(case, settings=case.settings | {"max_new_tokens": 1})
    found = []
    for samples, _ in first.runs("original", seeds):
        children = np.zeros((2, case.size))
        for (token,), leaf in samples:
            children[:, token] = 1, leaf.stream_key == ROOT
        found.append(children.ravel())
    assert_unbiased(found, np.concatenate(children_of_original(case)))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_greedy_takes_the_most_likely_token_whatever_the_seed_and_the_limit(case):
    text = [0]
    while len(text) <= case.config("greedy").max_new_tokens and text[-1] not in case.model.stop_ids:
        text.append(int(case.exact.next(text[-1], 0).argmax()))
    for samples, _ in case.runs("greedy", range(5)):
        assert [(found, leaf.weight) for found, leaf in samples] == [(tuple(text[1:]), 1.0)]


def test_the_statistics_detect_the_bias_of_the_original_rules_equal_weights():
    case = CASES["limit 5"]
    z = standard_errors_off(estimates(case, "original", range(300)), weighted(case.texts()))
    assert max(map(abs, z)) > 10


LAST = 1 - 2.0**-53  # the largest possible draw
UNIFORMS = st.one_of(st.sampled_from([0.0, 2.0**-53, 0.5, LAST]), st.floats(0, LAST))
SOME_WEIGHT = st.one_of(
    st.floats(1e-6, 1.0),
    st.sampled_from([0.1, 0.2, 0.25, 1 / 3, 1.0]),
    st.floats(-300, 0).map(lambda e: 10.0**e),
)
WEIGHTS = st.lists(st.one_of(SOME_WEIGHT, SOME_WEIGHT, st.just(0.0)), min_size=1, max_size=30)
GRID = [(index + 0.5) / 1000 for index in range(1000)]


@given(weights=WEIGHTS, limit=st.integers(1, 12), uniform=UNIFORMS)
@example(weights=[0.1] * 10, limit=3, uniform=0.0)
@example(weights=[0.1] * 10, limit=3, uniform=LAST)
@example(weights=[1 / 3] * 7, limit=6, uniform=0.0)
@example(weights=[1.0] * 200, limit=150, uniform=LAST)
@example(weights=[0.0] * 3, limit=2, uniform=0.7)
@example(weights=[0.0, 0.5, 0.0, 0.5], limit=2, uniform=0.7)
def test_survivors_their_sum_and_their_weights(weights, limit, uniform):
    """As many as the limit survive, with the same sum; heavy ones keep their weights, and light
    ones get an equal weight.
    """
    after = fearnhead_clifford(weights, limit, uniform)
    survivors = [weight for weight in after if weight is not None]
    assert math.fsum(survivors) == pytest.approx(math.fsum(weights), rel=1e-12)
    if len(weights) <= limit:
        assert survivors == weights
        return
    positive = [weight for weight in weights if weight > 0]
    assert len(survivors) <= limit
    assert len(survivors) >= min(limit, len(positive)) or min(positive) < 1e-12 * max(weights)
    light = {new for old, new in zip(weights, after, strict=True) if new not in (None, old)}
    assert len(light) <= 1
    for c in light:
        both = zip(weights, after, strict=True)
        assert all(new == old for old, new in both if old > c * (1 + 1e-12))
        kept = math.fsum(min(1.0, weight / c) for weight in weights)
        assert kept == pytest.approx(limit, abs=1e-9)


@given(weights=st.lists(st.floats(0.001, 1.0), min_size=2, max_size=12), limit=st.integers(1, 6))
def test_each_weight_is_preserved_in_expectation(weights, limit):
    means = [0.0] * len(weights)
    for uniform in GRID:
        for index, weight in enumerate(fearnhead_clifford(weights, limit, uniform)):
            means[index] += (weight or 0.0) / len(GRID)
    # Systematic resampling keeps each weight on one interval of u, so the grid is off by at most
    # two points, each of weight c.
    assert means == pytest.approx(weights, abs=2 * sum(weights) / len(GRID))


def test_a_worked_example_keeps_the_heavy_weight_and_picks_among_the_light_ones():
    weights = [0.1, 0.6, 0.1, 0.1, 0.1]  # limit 3: c = 0.2
    for uniform, expected in (
        (0.0, [None, 0.6, 0.2, None, 0.2]),
        (0.6, [0.2, 0.6, None, 0.2, None]),
    ):
        assert fearnhead_clifford(weights, 3, uniform) == pytest.approx(expected)
    for uniform in GRID[::10]:  # one of each pair of neighbours in the tree
        kept = [weight is not None for weight in fearnhead_clifford([0.09, 0.11] * 5, 5, uniform)]
        assert all(sum(kept[pair : pair + 2]) == 1 for pair in range(0, 10, 2))


NO_FORK = 20.0


def grow(model: TableModel, threshold: float, **settings: object) -> RunState:
    events = events_of(model, "0", entropy_threshold=threshold, max_paths=256, **settings)
    assert not any(isinstance(event, LimitActed) for event in events)
    return fold(events)


def prefixes(run: RunState) -> set[tuple[int, ...]]:
    """All nodes of the tree, each as the token ids from the root to it."""
    texts = [sample.token_ids for sample in run.samples]
    return {text[:length] for text in texts for length in range(len(text) + 1)}


@settings(max_examples=50)
@given(
    chain=st.integers(0, 10**6),
    size=st.integers(2, 6),
    thresholds=st.lists(st.floats(0.0, 1.8), min_size=2, max_size=4),
    factor=st.integers(2, 3),
    stops=st.sets(st.integers(0, 5), max_size=2),
    top_p=st.sampled_from([1.0, 0.9]),
    seed=st.integers(0, 2**63 - 1),
)
def test_the_tree_at_a_higher_threshold_is_a_subtree_of_the_one_at_a_lower(
    chain, size, thresholds, factor, stops, top_p, seed
):
    model = TableModel(random_table(chain, size), sorted(stops))
    settings = {"branch_factor": factor, "max_new_tokens": 5, "seed": seed, "top_p": top_p}
    trees = [
        prefixes(grow(model, threshold, **settings)) for threshold in sorted([*thresholds, NO_FORK])
    ]
    for lower, higher in itertools.pairwise(trees):
        assert higher <= lower
