"""The weights of `fair` sum to 1 at every step, and weighted averages are unbiased (compared with
exact expectations).
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policies import FORKING
from table_model import TableModel, random_table

from eab.config import BranchingConfig
from eab.engine.loop import generate
from eab.engine.request import Request
from eab.events import StepTimed
from eab.run import Run, fold

Text = tuple[int, ...]
TREES = 700
NOISE = 4.5  # standard errors; 30 unbiased comparisons stay below with probability 0.9998
ENTROPIES = st.floats(0.0, 1.6)

FUNCTIONALS: dict[str, Callable[[Text], float]] = {
    "ends with 0": lambda text: float(text[-1] == 0),
    "ends with 1": lambda text: float(text[-1] == 1),
    "begins with 2": lambda text: float(text[0] == 2),
    "length": len,
    "zeros": lambda text: text.count(0),
    "first is last": lambda text: float(text[0] == text[-1]),
}


def weigh(model: TableModel, config: BranchingConfig) -> list[float]:
    """The weighted sum of each functional over the leaves of one tree."""
    samples = fold(generate(model, Request("0", config))).samples()
    return [
        sum(sample.weight * f(sample.token_ids) for sample in samples) for f in FUNCTIONALS.values()
    ]


def standard_errors_off(model: TableModel, trees: int, **settings: object) -> list[float]:
    """Distance of the mean over many seeds from the exact expectation, in standard errors, for each
    functional.
    """
    configs = [BranchingConfig(seed=seed, **settings) for seed in range(trees)]
    estimates = np.array([weigh(model, config) for config in configs])
    texts = list(model.all_texts(0, configs[0].max_new_tokens))
    exact = np.array(
        [math.fsum(mass * f(text) for text, mass in texts) for f in FUNCTIONALS.values()]
    )
    errors = estimates.std(axis=0, ddof=1) / math.sqrt(trees)
    assert (errors < 0.08 * np.maximum(exact, 0.2)).all(), "too noisy to tell"
    return list((estimates.mean(axis=0) - exact) / errors)


@settings(max_examples=40)
@given(
    chain=st.integers(0, 10**6),
    size=st.integers(2, 7),
    concentration=st.sampled_from([0.1, 0.6, 3.0]),
    threshold=ENTROPIES,
    factor=st.integers(2, 6),
    max_paths=st.integers(1, 12),
    min_fork_weight=st.sampled_from([0.0, 0.1, 1.0]),
    stops=st.sets(st.integers(0, 6), max_size=2),
    policy=st.sampled_from(["fair", *FORKING]),
    seed=st.integers(0, 2**63 - 1),
)
def test_after_every_step_the_weights_of_the_leaves_sum_to_one(
    chain, size, concentration, threshold, factor, max_paths, min_fork_weight, stops, policy, seed
):
    config = BranchingConfig(
        entropy_threshold=threshold,
        branch_factor=factor,
        max_paths=max_paths,
        min_fork_weight=min_fork_weight,
        max_new_tokens=8,
        seed=seed,
        policy=policy,
    )
    model = TableModel(random_table(chain, size, concentration), sorted(stops))
    events = generate(model, Request("0", config))
    run = Run(next(events))
    for event in events:
        run.apply(event)
        if isinstance(event, StepTimed):
            leaves = run.leaves()
            assert math.fsum(leaf.weight for leaf in leaves) == pytest.approx(1, abs=1e-9)
            assert all(leaf.weight > 0 for leaf in leaves)
            if policy != "original":
                assert len(leaves) <= max_paths
                assert sum(leaf.heir for leaf in leaves) <= len(leaves)
    assert_leaves_are_distinct_with_exact_log_probs(run, model)


def assert_leaves_are_distinct_with_exact_log_probs(run: Run, model: TableModel) -> None:
    samples = run.samples()
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


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("no limit acts", {"max_paths": 256}),
        ("the path limit acts", {"max_paths": 5}),
        ("a tight limit", {"max_paths": 2}),
        ("light paths do not fork", {"max_paths": 256, "min_fork_weight": 0.1}),
        ("many children", {"max_paths": 6, "branch_factor": 4, "entropy_threshold": 0.0}),
    ],
)
def test_fair_weighted_averages_are_unbiased(name, more):
    model = TableModel(random_table(7, 4, 0.5), stop_ids=[3])
    settings = {"max_new_tokens": 5, "branch_factor": 2, "entropy_threshold": 0.7} | more
    z = standard_errors_off(model, TREES, **settings)
    assert max(map(abs, z)) < NOISE, dict(zip(FUNCTIONALS, z, strict=True))


def test_fair_weighted_averages_are_unbiased_under_the_filtered_distribution():
    table = random_table(11, 5, 0.8)
    squared = table**2  # temperature 0.5
    third = np.sort(squared, axis=1)[:, -3:-2]
    kept = np.where(squared >= third, squared, 0)
    exact_model = TableModel(kept / kept.sum(axis=1, keepdims=True))
    settings = {"max_new_tokens": 4, "entropy_threshold": 0.5, "max_paths": 4, "branch_factor": 2}
    estimates = np.array(
        [
            weigh(
                TableModel(table), BranchingConfig(seed=seed, temperature=0.5, top_k=3, **settings)
            )
            for seed in range(TREES)
        ]
    )
    texts = list(exact_model.all_texts(0, 4))
    for column, f in zip(estimates.T, FUNCTIONALS.values(), strict=True):
        exact = math.fsum(mass * f(text) for text, mass in texts)
        assert abs(column.mean() - exact) < NOISE * column.std(ddof=1) / math.sqrt(TREES) + 1e-12


def test_without_forks_a_run_is_one_ordinary_sample():
    model = TableModel(random_table(7, 4, 0.5), stop_ids=[3])
    z = standard_errors_off(model, 2 * TREES, max_new_tokens=5, entropy_threshold=20.0)
    assert max(map(abs, z)) < NOISE


def test_equal_weights_of_the_original_rule_are_far_off_and_the_statistics_notice():
    model = TableModel(random_table(7, 4, 0.5), stop_ids=[3])
    z = standard_errors_off(
        model,
        500,
        max_new_tokens=5,
        branch_factor=2,
        entropy_threshold=0.7,
        max_paths=5,
        policy="original",
    )
    assert max(map(abs, z)) > 10
