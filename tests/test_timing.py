"""Interleaved repeats, their spread and what counts as a difference. No test reads a clock."""

import random
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eab.timing import (
    MIN_REPEATS,
    NO_DIFFERENCE,
    TOO_FEW,
    Timing,
    comparison,
    differs,
    take_turns,
    timed,
    timings_by,
)

SECONDS = st.floats(1e-9, 1e3)
REPEATS = st.lists(SECONDS, min_size=1, max_size=30).map(lambda found: Timing(tuple(found)))


def recorded(seconds: Iterable[float]) -> Callable[[], float]:
    """A measurement that returns these seconds in turn."""
    return iter(seconds).__next__


def ticking(step: float) -> Callable[[], float]:
    """A clock that advances by `step` seconds at each reading."""
    ticks: Iterator[float] = (step * number for number in range(10**6))
    return ticks.__next__


def test_alternatives_take_turns_and_the_first_round_does_not_count() -> None:
    order: list[str] = []

    def measure(name: str, seconds: list[float]) -> Callable[[], float]:
        def once() -> float:
            order.append(name)
            return seconds.pop(0)

        return once

    found = take_turns(
        {"a": measure("a", [90.0, 1.0, 3.0]), "b": measure("b", [80.0, 2.0, 4.0])}, repeats=2
    )
    assert order == ["a", "b"] * 3
    assert found == {"a": Timing((1.0, 3.0)), "b": Timing((2.0, 4.0))}


def test_work_is_timed_by_the_given_clock() -> None:
    done: list[int] = []
    assert timed(lambda: done.append(1), ticking(0.5))() == 0.5
    assert done == [1]


def test_median_and_quartiles_of_a_small_case() -> None:
    timing = Timing((5.0, 1.0, 2.0, 4.0, 3.0))
    assert (timing.low, timing.median, timing.high) == (2.0, 3.0, 4.0)
    alone = Timing((7.0,))
    assert (alone.low, alone.median, alone.high) == (7.0, 7.0, 7.0)


@given(REPEATS)
def test_the_spread_contains_the_median(timing: Timing) -> None:
    assert min(timing.seconds) <= timing.low <= timing.median <= timing.high <= max(timing.seconds)
    assert not differs(timing, timing)


@given(REPEATS, REPEATS)
def test_a_difference_is_symmetric_and_agrees_with_the_medians(a: Timing, b: Timing) -> None:
    assert differs(a, b) == differs(b, a)
    if differs(a, b):
        assert abs(a.median - b.median) > a.width
        assert NO_DIFFERENCE not in comparison(a, b)
    else:
        few = min(len(a.seconds), len(b.seconds)) < MIN_REPEATS
        assert comparison(a, b) == (TOO_FEW if few else NO_DIFFERENCE)


def test_a_difference_is_given_as_a_ratio_unless_repeats_are_few() -> None:
    slow, fast = around(2.1, 0.1), around(1.05, 0.05)
    assert comparison(fast, slow) == "2.00 times as fast"
    fast, slow = Timing((1.0,) * (MIN_REPEATS - 1)), Timing((2.0,) * MIN_REPEATS)
    assert not differs(fast, slow)
    assert comparison(fast, slow) == TOO_FEW


def test_repeats_are_grouped_by_name_in_their_order() -> None:
    assert timings_by([("a", 2.0), ("b", 5.0), ("a", 1.0)]) == {
        "a": Timing((2.0, 1.0)),
        "b": Timing((5.0,)),
    }


def around(median: float, spread: float) -> Timing:
    """Nine repeats whose middle half is this wide."""
    offsets = (-0.9, -0.8, -0.5, -0.1, 0.0, 0.1, 0.5, 0.8, 0.9)
    return Timing(tuple(median + spread * offset for offset in offsets))


def test_a_difference_smaller_than_the_spread_does_not_count() -> None:
    assert not differs(around(1.0, 0.3), around(1.2, 0.01))
    assert differs(around(1.0, 0.3), around(1.4, 0.01))


@pytest.mark.parametrize(("repeats", "share"), [(7, 0.063), (9, 0.038)])
def test_noise_alone_rarely_counts_as_a_difference(repeats: int, share: float) -> None:
    """Normal noise: over 4,000 comparisons the standard error of the share is at most 0.4%."""
    chance = random.Random(7)

    def noise() -> Timing:
        return Timing(tuple(chance.gauss(100.0, 1.0) for _ in range(repeats)))

    found = sum(differs(noise(), noise()) for _ in range(4_000)) / 4_000
    assert found == pytest.approx(share, abs=3 * 0.004)
