"""Branching decisions on tables small enough to work out by hand."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import events_of, run_of
from policies import FORKING
from stepping import Text, leaves_of

from eab.config import BranchingConfig
from eab.engine.branching.policies import OriginalPolicy
from eab.engine.branching.policy import Child, Leaf
from eab.engine.branching.random_streams import ROOT, Purpose, uniform
from eab.engine.branching.sampling import Predictions
from eab.lessons.checks.policy import Table, TableModel, random_table
from eab.run import RunState, fold
from eab.run.events import (
    Event,
    Forked,
    LimitActed,
    Predicted,
    Pruned,
    Reweighted,
    Speculated,
    TokensAppended,
)

SEEDS = range(40)
BASE = BranchingConfig(max_new_tokens=1, entropy_threshold=0.0)


def same_row(probabilities: list[float]) -> Table:
    """A chain without memory: all rows of the table are equal."""
    return np.tile(probabilities, (len(probabilities), 1))


FIVE = same_row([0.05, 0.4, 0.1, 0.3, 0.15])


def told(table: Table, stop_ids: tuple[int, ...] = (), **settings: object) -> list[Event]:
    return events_of(TableModel(table, stop_ids), "0", BASE, **settings)


def tree_of(table: Table, stop_ids: tuple[int, ...] = (), **settings: object) -> RunState:
    return fold(told(table, stop_ids, **settings))


def texts_of(run: RunState) -> list[tuple[int, ...]]:
    return sorted(sample.token_ids for sample in run.samples)


def live_counts(run: RunState) -> list[int]:
    """The number of paths that went through the model, per step."""
    return [step.timing.tokens for step in run.steps if step.timing is not None]


def test_a_whole_tree_matches_the_one_worked_out_by_hand():
    first, sure_1, half = [0.0, 0.7, 0.3], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]
    table = np.array([[first, first, first], [half, sure_1, half], [half, half, half]])
    run = tree_of(table, max_new_tokens=3, entropy_threshold=0.6, branch_factor=2)
    found = {sample.token_ids: (sample.weight, sample.log_prob) for sample in run.samples}
    # Step 0 forks into 1 (0.7) and 2 (0.3). Step 1: after 1, token 1 is certain; after 2, a fork
    # into 0 and 1. Step 2: every path forks into 0 and 1.
    expected = {
        (1, 1, 0): 0.35,
        (1, 1, 1): 0.35,
        (2, 0, 0): 0.075,
        (2, 0, 1): 0.075,
        (2, 1, 0): 0.075,
        (2, 1, 1): 0.075,
    }
    assert found.keys() == expected.keys()
    for text, weight in expected.items():
        assert found[text] == pytest.approx((weight, math.log(weight)), abs=1e-12)
    assert [(path.id, path.parent) for path in run.paths] == [
        *[(0, -1), (1, 0), (2, 0), (3, 2), (4, 2)],
        *[(5, 1), (6, 1), (7, 3), (8, 3), (9, 4), (10, 4)],
    ]
    assert [path.fork_entropy for path in run.paths[:3]] == pytest.approx(
        [-0.7 * math.log(0.7) - 0.3 * math.log(0.3), math.log(2), math.log(2)]
    )


def test_an_entropy_that_equals_the_threshold_forks_and_one_below_does_not():
    table = same_row([0.5, 0.25, 0.25])
    [[seen]] = [event.predictions for event in told(table) if isinstance(event, Predicted)]
    entropy = seen.entropy
    assert entropy == pytest.approx(1.5 * math.log(2), abs=1e-12)
    assert len(tree_of(table, entropy_threshold=entropy).leaves()) == 3
    assert len(tree_of(table, entropy_threshold=math.nextafter(entropy, 9)).leaves()) == 1


def test_a_normalised_threshold_is_a_fraction_of_the_log_of_the_vocabulary_size():
    for chances, share, leaves in (([0.25] * 4, 0.999, 3), ([0.5, 0.5, 0.0, 0.0], 0.51, 1)):
        run = tree_of(same_row(chances), entropy_threshold=share, threshold_unit="normalised")
        assert run.started.threshold_nats == pytest.approx(share * math.log(4))
        assert len(run.leaves()) == leaves


def test_a_rank_threshold_comes_from_a_greedy_probe():
    # Greedy decoding: 0 -> 1 -> 2 -> 0 ...
    table = np.array([[0.1, 0.9, 0.0], [0.0, 0.4, 0.6], [1.0, 0.0, 0.0]])
    run = tree_of(table, entropy_threshold=1.0, threshold_unit="rank", max_new_tokens=5)
    low, high = (-p * math.log(p) - (1 - p) * math.log(1 - p) for p in (0.9, 0.6))
    assert run.probe == pytest.approx([low, high, 0, low, high], abs=1e-12)
    # The highest is the second one, but the first uncertain word forks, too.
    assert run.started.threshold_nats == pytest.approx(low, rel=2e-3)


def test_a_fork_has_the_most_likely_tokens_and_one_drawn_from_the_rest():
    rests = set()
    for seed in SEEDS:
        run = tree_of(FIVE, seed=seed, branch_factor=3)
        children = [run.paths[child] for child in run.paths[0].children]
        weights = {child.tokens[0].id: child.weight for child in children}
        [rest] = weights.keys() - {1, 3}
        assert weights == pytest.approx({1: 0.4, 3: 0.3, rest: 0.3})
        rests.add(rest)
    assert rests == {0, 2, 4}


@pytest.mark.parametrize("policy", ["fair", "original"])
def test_no_child_has_probability_zero_when_too_few_tokens_are_possible(policy):
    two = same_row([0.0, 0.6, 0.0, 0.4, 0.0])
    filtered = {"top_k": 2, "branch_factor": 3, "max_new_tokens": 4}
    for seed in SEEDS:
        assert texts_of(tree_of(two, seed=seed, branch_factor=4, policy=policy)) == [(1,), (3,)]
        run = tree_of(random_table(seed, 6), seed=seed, policy=policy, **filtered)
        assert all(math.isfinite(sample.log_prob) for sample in run.samples)
        assert all(len(path.children) <= 2 for path in run.paths)


@pytest.mark.parametrize("policy", [*FORKING, "greedy"])
def test_a_single_possible_token_never_forks_even_at_threshold_zero(policy):
    events = told(random_table(3, 6), top_k=1, policy=policy, max_new_tokens=6)
    assert not any(isinstance(event, Forked) for event in events)
    assert len(fold(events).leaves()) == 1


def test_a_path_below_the_minimum_fork_weight_does_not_fork():
    run = tree_of(same_row([0.85, 0.15]), branch_factor=2, min_fork_weight=0.14, max_new_tokens=4)
    forked = sorted(path.weight for path in run.paths if path.status == "forked")
    assert forked == pytest.approx([0.15, 0.85**3, 0.85**2, 0.85, 1.0])
    assert live_counts(run) == [1, 2, 4, 5]


def test_a_rest_below_the_least_share_is_kept_at_random_and_then_weighs_that_share():
    kept = 0
    for seed in SEEDS:
        run = tree_of(same_row([0.5, 0.4, 0.1]), seed=seed, branch_factor=3, branch_min_p=0.5)
        weights = sorted(leaf.weight for leaf in run.leaves())
        has_rest = len(weights) == 3
        kept += has_rest
        expected = [0.25, 0.75 * 4 / 9, 0.75 * 5 / 9] if has_rest else [4 / 9, 5 / 9]
        assert weights == pytest.approx(expected)
    assert 8 <= kept <= 24  # with probability 0.1 / 0.25


def test_the_events_record_what_the_path_limit_does():
    events = told(same_row([0.1, 0.2, 0.7]), max_paths=4, max_new_tokens=8)
    assert {LimitActed, Pruned, Reweighted} <= {type(event) for event in events}
    for index, event in enumerate(events):
        if isinstance(event, LimitActed):
            for _, tokens in event.dropped:
                assert all(0 <= token < 3 for token in tokens)
                assert len(set(tokens)) == len(tokens)
            assert isinstance(events[index + 1], Pruned | Forked | TokensAppended)


def test_a_stop_token_ends_a_path_and_the_length_limit_ends_the_others():
    run = tree_of(same_row([0.5, 0.5]), (1,), branch_factor=2, max_new_tokens=3)
    stopped = {(0, 0, 1): "stop", (0, 1): "stop", (1,): "stop"}
    found = {sample.token_ids: sample.finish_reason for sample in run.samples}
    assert found == stopped | {(0, 0, 0): "length"}
    assert len(run.samples) == 4
    early = tree_of(np.array([[0.0, 1.0], [1.0, 0.0]]), (1,), max_new_tokens=50)
    assert len(early.steps) == 1, "a run ends with its last path"


ORIGINAL = {"policy": "original", "branch_factor": 3}


@pytest.mark.parametrize(
    ("max_paths", "counts"),
    [
        # A budget of 3 gives 3 children; then a budget of 1 gives every fork one child.
        (4, [1, 3, 3, 3, 3, 3]),
        # At the limit, every path forks into two, and the surplus paths are pruned.
        (5, [1, 3, 5, 5, 5, 5]),
    ],
)
def test_the_original_rule_stops_one_path_short_of_its_limit_or_prunes_back_to_it(
    max_paths, counts
):
    run = tree_of(same_row([0.4, 0.3, 0.2, 0.1]), max_paths=max_paths, max_new_tokens=6, **ORIGINAL)
    assert live_counts(run) == counts
    assert any(path.status == "pruned" for path in run.paths) == (max_paths == 5)


@pytest.mark.parametrize(
    ("live", "children"), [(1, 3), (16, 3), (17, 3), (18, 2), (19, 1), (20, 2), (25, 2)]
)
def test_the_budget_of_the_original_rule_gives_three_two_one_two_children(live, children):
    config = BranchingConfig(**ORIGINAL, max_paths=20, entropy_threshold=0.5)
    leaves = [Leaf(path, path, 1 / live, 0.0) for path in range(live)]
    predictions = Predictions(torch.zeros(live, 6), config)
    predictions.draw_next([0.5] * live, [])
    families = OriginalPolicy(config, 0.5).branch(leaves, predictions, step=0)
    assert [len(family) for family in families] == [children] * live
    assert all(len({child.token for child in family}) == children for family in families)


def test_over_its_limit_the_original_rule_keeps_all_finished_and_the_likeliest_live_paths():
    config = BranchingConfig(policy="original", max_paths=2)
    parent = Leaf(0, 0, 0.5, -1.0)
    children = [
        Child(parent, token, log_prob, 0.5, False)
        for token, log_prob in enumerate([-3.0, -0.5, -2.0, -4.0])
    ]
    finished = Leaf(9, 9, 0.5, -50.0, finished=True)
    kept = OriginalPolicy(config, 0.5).prune([children[0], finished, *children[1:]], step=3)
    assert kept == [None, 1 / 3, 1 / 3, 1 / 3, None]


def test_finished_paths_under_the_original_rule_are_never_pruned_and_leave_the_budget():
    settings = {"max_paths": 4, "max_new_tokens": 12, "seed": 1}
    run = tree_of(same_row([0.4, 0.3, 0.3]), (2,), **ORIGINAL, **settings)
    assert len(run.leaves()) > 4
    assert not any(path.finish_reason and path.status == "pruned" for path in run.paths)
    weights = {round(leaf.weight, 12) for leaf in run.leaves()}
    assert weights == {round(1 / len(run.leaves()), 12)}


def test_the_heir_is_the_token_that_is_drawn_without_a_fork():
    heirs = set()
    for seed in SEEDS:
        run = tree_of(FIVE, seed=seed, branch_factor=3)
        [heir] = [path for path in run.paths[1:] if path.heir]
        [alone] = texts_of(tree_of(FIVE, seed=seed, entropy_threshold=20.0))
        place = uniform(seed, ROOT, 0, Purpose.TOKEN)
        drawn = int(np.searchsorted(np.cumsum(FIVE[0]), place, side="right"))
        assert (heir.tokens[0].id,) == alone == (drawn,)
        heirs.add(alone[0])
    assert len(heirs) >= 4


ARITHMETIC = {"policy": "arithmetic", "max_new_tokens": 5}


@settings(max_examples=60)
@given(
    chain=st.integers(0, 10**6),
    size=st.integers(2, 7),
    concentration=st.sampled_from([0.1, 0.6, 3.0]),
    codes=st.integers(1, 64),
    stops=st.sets(st.integers(0, 6), max_size=2),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_prefix_of_probability_p_gets_n_p_codes_rounded_up_or_down(
    chain, size, concentration, codes, stops, seed
):
    model = TableModel(random_table(chain, size, concentration), sorted(stops))
    config = BranchingConfig(**ARITHMETIC, max_paths=codes, seed=seed)
    leaves, _ = leaves_of(model, config)
    found: Counter[Text] = Counter()
    for text, leaf in leaves.items():
        count = leaf.weight * codes
        assert count == pytest.approx(round(count), abs=1e-9), "a whole number of codes"
        for length in range(len(text) + 1):
            found[text[:length]] += round(count)
    assert found[()] == codes
    for prefix, count in found.items():
        steps = enumerate(zip((0, *prefix), prefix, strict=False))
        expected = codes * math.prod(model.next(last, step)[token] for step, (last, token) in steps)
        assert math.floor(expected - 1e-6) <= count <= math.ceil(expected + 1e-6), prefix


def test_a_run_without_forks_is_one_ordinary_sample() -> None:
    model = TableModel(random_table(7, 4, 0.5), stop_ids=[3])
    for seed in range(20):
        without_forks = run_of(model, "0", entropy_threshold=20, max_new_tokens=5, seed=seed)
        for policy in ("independent", "stochastic-beam", "arithmetic", "original"):
            settings = {"policy": policy, "max_paths": 1, "max_new_tokens": 5, "seed": seed}
            one = run_of(model, "0", entropy_threshold=20, **settings)
            assert one.samples == without_forks.samples


def test_draft_tokens_of_a_path_with_one_code_are_verified(embedded) -> None:
    settings = {"max_paths": 4, "seed": 2, "max_new_tokens": 40, "temperature": 1.3}
    drafting = {"drafter": "prompt-lookup", "draft_length": 4}
    prompt = "One, two, three, one, two, three, one,"
    events = events_of(embedded, prompt, **ARITHMETIC | settings | drafting)
    drafts = [event for event in events if isinstance(event, Speculated)]
    assert sum(event.accepted for event in drafts) > 0
