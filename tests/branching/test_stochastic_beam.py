"""The policy `stochastic-beam`: it draws without replacement, and how its estimates behave."""

import math
from collections import Counter
from functools import lru_cache
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stepping import Text, leaves_of
from table_model import TableModel, random_table

from eab.branching.policy import Leaf
from eab.branching.stochastic_beam import StochasticBeamPolicy, importance
from eab.config import BranchingConfig

NOISE = 4.5  # standard errors
LENGTH = 3
RUNS, FEW, MANY = 600, 2, 12
MODEL = TableModel(random_table(7, 4, 3.0), stop_ids=[3])
EXACT = dict(MODEL.all_texts(0, LENGTH))


def drawn(count: int, seed: int, model: TableModel = MODEL) -> tuple[dict[Text, Leaf], float]:
    """The leaves of one run, and kappa."""
    config = BranchingConfig(
        policy="stochastic-beam", max_paths=count, seed=seed, max_new_tokens=LENGTH
    )
    leaves, policy = leaves_of(model, config)
    assert isinstance(policy, StochasticBeamPolicy)
    return leaves, policy.kappa


@lru_cache
def many_drawn(count: int) -> list[tuple[dict[Text, Leaf], float]]:
    return [drawn(count, seed) for seed in range(RUNS)]


def inclusion(count: int) -> dict[Text, float]:
    """The chance of each text to be among `count` that are drawn without replacement."""
    found: dict[Text, float] = dict.fromkeys(EXACT, 0.0)
    for order in permutations(EXACT, count):
        chance, left = 1.0, 1.0
        for text in order:
            chance *= EXACT[text] / left
            left -= EXACT[text]
        for text in order:
            found[text] += chance
    return found


def test_a_text_is_included_as_often_as_in_drawing_without_replacement() -> None:
    found = Counter(text for leaves, _ in many_drawn(FEW) for text in leaves)
    assert found.keys() <= EXACT.keys()
    for text, chance in inclusion(FEW).items():
        error = math.sqrt(max(chance * (1 - chance), 1 / RUNS) / RUNS)
        assert abs(found[text] / RUNS - chance) < NOISE * error, text


@settings(max_examples=60)
@given(
    chain=st.integers(0, 10**6),
    size=st.integers(2, 7),
    concentration=st.sampled_from([0.1, 0.6, 3.0]),
    count=st.integers(1, 20),
    stops=st.sets(st.integers(0, 6), max_size=2),
    seed=st.integers(0, 2**63 - 1),
)
def test_as_many_different_texts_as_there_can_be_and_weights_that_sum_to_one(
    chain, size, concentration, count, stops, seed
):
    model = TableModel(random_table(chain, size, concentration), sorted(stops))
    leaves, kappa = drawn(count, seed, model)
    exact = {text: mass for text, mass in model.all_texts(0, LENGTH) if mass > 0}
    assert len(leaves) == min(count, len(exact))
    assert (kappa == -math.inf) == (len(exact) <= count)
    assert math.fsum(leaf.weight for leaf in leaves.values()) == pytest.approx(1, abs=1e-9)
    for text, leaf in leaves.items():
        assert leaf.log_prob == pytest.approx(math.log(exact[text]), abs=1e-9)
        if len(exact) <= count:
            assert leaf.weight == pytest.approx(exact[text], abs=1e-9)


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("token", range(3))
@pytest.mark.parametrize("place", [0, -1])
def test_importance_weights_are_unbiased(count: int, token: int, place: int) -> None:
    """The estimated and the exact chance that the first, or the last, token is this one."""
    estimates = [
        math.fsum(
            math.exp(importance(leaf.log_prob, kappa))
            for text, leaf in leaves.items()
            if text[place] == token
        )
        for leaves, kappa in many_drawn(count)
    ]
    exact = math.fsum(mass for text, mass in EXACT.items() if text[place] == token)
    error = np.std(estimates, ddof=1) / math.sqrt(RUNS)
    assert error < 0.2 * exact, "too noisy to tell"
    assert abs(np.mean(estimates) - exact) < NOISE * error


def test_normalised_weights_are_biased_the_less_the_more_texts_are_drawn() -> None:
    def bias(count: int) -> float:
        totals = Counter[Text]()
        for leaves, _ in many_drawn(count):
            for text, leaf in leaves.items():
                totals[text] += leaf.weight / RUNS
        return sum(abs(totals[text] - mass) for text, mass in EXACT.items())

    assert bias(FEW) > 2 * bias(MANY)


def test_the_importance_weight_of_likely_and_of_unlikely_texts() -> None:
    for p, kappa in ((0.5, -1.0), (1e-3, 0.0), (0.9, -8.0)):
        exact = p / (1 - math.exp(-p * math.exp(-kappa)))
        assert importance(math.log(p), kappa) == pytest.approx(math.log(exact), abs=1e-9)
    assert importance(-0.1, -math.inf) == -0.1, "nothing was dropped: it is its probability"
    assert importance(-2000.0, -3.0) == pytest.approx(-3.0), "p / q tends to exp(kappa)"
    assert importance(-1.0, -5000.0) == -1.0


def test_the_same_seed_gives_more_texts_of_the_same_sample() -> None:
    """Random numbers depend on the path and the step alone, so a larger sample holds a smaller."""
    for seed in range(30):
        few, many = (set(drawn(count, seed)[0]) for count in (3, 7))
        assert few <= many


def test_very_unlikely_texts_have_weights_too() -> None:
    table = np.array([[1 - 1e-13, 1e-13], [0.5, 0.5]])
    leaves, _ = drawn(4, 1, TableModel(table))
    assert len(leaves) == 4
    assert all(leaf.weight > 0 for leaf in leaves.values())
    assert max(leaf.weight for leaf in leaves.values()) > 1 - 1e-9
