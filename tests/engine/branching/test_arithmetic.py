"""The `arithmetic` policy: how many codes a prefix gets, and how a path with one code draws."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import events_of, run_of
from stepping import Text, leaves_of

from eab.config import BranchingConfig
from eab.lessons.checks.policy import TableModel, random_table
from eab.run.events import Speculated


def config_of(codes: int, seed: int = 0, tokens: int = 5) -> BranchingConfig:
    return BranchingConfig(policy="arithmetic", max_paths=codes, seed=seed, max_new_tokens=tokens)


def prefix_probability(model: TableModel, prefix: Text) -> float:
    before = (0, *prefix)
    return math.prod(
        model.next(last, step)[token]
        for step, (last, token) in enumerate(zip(before, prefix, strict=False))
    )


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
    leaves, _ = leaves_of(model, config_of(codes, seed))
    found: Counter[Text] = Counter()
    for text, leaf in leaves.items():
        count = leaf.weight * codes
        assert count == pytest.approx(round(count), abs=1e-9), "a whole number of codes"
        for length in range(len(text) + 1):
            found[text[:length]] += round(count)
    assert found[()] == codes
    for prefix, count in found.items():
        expected = codes * prefix_probability(model, prefix)
        assert math.floor(expected - 1e-6) <= count <= math.ceil(expected + 1e-6), prefix


def test_one_code_gives_one_ordinary_sample() -> None:
    model = TableModel(random_table(7, 4, 0.5), stop_ids=[3])
    for seed in range(20):
        for policy in ("independent", "stochastic-beam", "arithmetic"):
            one = run_of(model, "0", policy=policy, max_paths=1, max_new_tokens=5, seed=seed)
            without_forks = run_of(model, "0", entropy_threshold=20, max_new_tokens=5, seed=seed)
            assert one.samples == without_forks.samples


def test_draft_tokens_of_a_path_with_one_code_are_verified(embedded) -> None:
    drafting = {"drafter": "prompt-lookup", "draft_length": 4, "temperature": 1.3}
    prompt = "One, two, three, one, two, three, one,"
    events = events_of(embedded, prompt, config_of(4, seed=2, tokens=40), **drafting)
    drafts = [event for event in events if isinstance(event, Speculated)]
    assert sum(event.accepted for event in drafts) > 0


def test_the_codes_form_a_lattice() -> None:
    """Worked out by hand: of four equally likely tokens, four codes choose each one once."""
    model = TableModel(np.full((4, 4), 0.25))
    for seed in range(20):
        leaves, _ = leaves_of(model, config_of(4, seed, tokens=1))
        assert {text: leaf.weight for text, leaf in leaves.items()} == {
            (token,): 0.25 for token in range(4)
        }
        leaves, _ = leaves_of(model, config_of(16, seed, tokens=2))
        assert len(leaves) == 16, "sixteen codes choose each of the sixteen texts once"


def test_estimates_vary_less_than_those_of_independent_texts() -> None:
    """The weight of the first token is off by less than one code in n."""
    model = TableModel(random_table(7, 4, 0.5))
    for seed in range(50):
        leaves, _ = leaves_of(model, config_of(10, seed, tokens=3))
        for token, p in enumerate(model.next(0, 0)):
            weight = sum(leaf.weight for text, leaf in leaves.items() if text[0] == token)
            assert abs(weight - p) < 0.1
