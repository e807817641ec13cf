"""Bounds on the entropy from the most likely tokens: always valid, and attained."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from eab.engine.step_events import entropy_bounds

masses = st.lists(st.floats(0.0, 1.0, allow_subnormal=False), min_size=2, max_size=60).filter(
    lambda values: sum(values) > 0.01
)


def entropy(probs: list[float]) -> float:
    return -math.fsum(p * math.log(p) for p in probs if p > 0)


def bounds(known: list[float], vocab_size: int) -> tuple[float, float]:
    logs = [math.log(p) if p > 0 else -math.inf for p in known]
    low, high = entropy_bounds(torch.tensor([logs], dtype=torch.float64), vocab_size)[0].tolist()
    return low, high


@given(masses, st.data())
def test_the_entropy_lies_within_the_bounds(values: list[float], data: st.DataObject) -> None:
    probs = sorted((value / sum(values) for value in values), reverse=True)
    top = data.draw(st.integers(1, len(probs)))
    low, high = bounds(probs[:top], len(probs))
    assert low - 1e-9 <= entropy(probs) <= high + 1e-9


@given(masses, st.data())
def test_more_tokens_narrow_the_bounds(values: list[float], data: st.DataObject) -> None:
    probs = sorted((value / sum(values) for value in values), reverse=True)
    top = data.draw(st.integers(1, len(probs) - 1))
    low, high = bounds(probs[:top], len(probs))
    narrower_low, narrower_high = bounds(probs[: top + 1], len(probs))
    assert low - 1e-9 <= narrower_low
    assert narrower_high <= high + 1e-9


@pytest.mark.parametrize(
    ("known", "vocab_size", "least", "most"),
    [
        # 0.6 is left: three tokens of 0.2 for the lower bound, ten of 0.06 for the upper.
        ([0.2, 0.2], 12, [0.2] * 5, [0.2, 0.2, *[0.06] * 10]),
        # 0.3 is left: one token of 0.3 for the lower bound, four of 0.075 for the upper.
        ([0.4, 0.3], 6, [0.4, 0.3, 0.3], [0.4, 0.3, *[0.075] * 4]),
        ([0.5, 0.2], 7, [0.5, 0.2, 0.2, 0.1], [0.5, 0.2, *[0.06] * 5]),
        # Nothing is left.
        ([0.7, 0.3], 50, [0.7, 0.3], [0.7, 0.3]),
        # All tokens are known.
        ([0.5, 0.3, 0.2], 3, [0.5, 0.3, 0.2], [0.5, 0.3, 0.2]),
        # All are equal: no other token may be likelier than the last known one.
        ([0.25], 4, [0.25] * 4, [0.25] * 4),
        ([1.0], 9, [1.0], [1.0]),
    ],
)
def test_the_bounds_are_attained(
    known: list[float], vocab_size: int, least: list[float], most: list[float]
) -> None:
    low, high = bounds(known, vocab_size)
    assert low == pytest.approx(entropy(least), abs=1e-9)
    assert high == pytest.approx(entropy(most), abs=1e-9)


def test_rows_may_have_different_numbers_of_known_tokens() -> None:
    rows = torch.tensor([[0.5, 0.2, 0.1], [0.9, 0.0, 0.0]]).log()
    found = entropy_bounds(rows, 30).tolist()
    for row, known in zip(found, ([0.5, 0.2, 0.1], [0.9]), strict=True):
        assert row == pytest.approx(bounds(known, 30), abs=1e-6)


def test_rounding_may_raise_the_sum_above_one() -> None:
    low, high = bounds([0.7, 0.3001], 4096)
    assert low == pytest.approx(high, abs=1e-3)
