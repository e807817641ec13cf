"""Compares how long alternatives take, in numbers and in words: medians of interleaved repeats,
with their spread.

The alternatives take turns, so that whatever disturbs the machine disturbs all of them. The first
round is a warm-up and does not count. The spread is the interquartile range of the repeats. Two
medians differ if they are further apart than the wider of their spreads; otherwise no difference
was measured. For equal alternatives with normal noise, this rule finds a difference in 6% of the
comparisons with 7 repeats, and in 4% with 9 (tests/test_timing.py). Timings with fewer than
MIN_REPEATS repeats are shown, but no conclusion is drawn from them.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Final, TypeAlias, TypeVar

from eab.formatting import counted, times

NOTHING_YET: Final = "Nothing measured yet."
NO_DIFFERENCE: Final = "no difference measured"
TOO_FEW: Final = "too few repeats to compare"
MIN_REPEATS: Final = 7  # before any conclusion is drawn
MILLI: Final = 1000.0

Key = TypeVar("Key", bound=Hashable)
Measure: TypeAlias = Callable[[], float]  # does the work once and returns the seconds
Clock: TypeAlias = Callable[[], float]  # returns the time in seconds once all work is done


@dataclass(frozen=True, slots=True)
class Timing:
    """The repeats of one measurement."""

    seconds: tuple[float, ...]  # one per repeat, in order; another unit if this is not a time

    @property
    def median(self) -> float:
        """The median of the repeats."""
        return median(self.seconds)

    @property
    def low(self) -> float:
        """The lower quartile: the lower end of the spread."""
        return self._quartile(0)

    @property
    def high(self) -> float:
        """The upper quartile: the upper end of the spread."""
        return self._quartile(2)

    def _quartile(self, index: int) -> float:
        if len(self.seconds) == 1:
            return self.seconds[0]
        return quantiles(self.seconds, n=4, method="inclusive")[index]

    @property
    def width(self) -> float:
        """The width of the spread, in seconds."""
        return self.high - self.low


def timed(work: Callable[[], object], clock: Clock = time.perf_counter) -> Measure:
    """Make work measurable. A GPU needs a clock that waits (see eab.labs.decode_steps.now)."""

    def measure() -> float:
        start = clock()
        work()
        return clock() - start

    return measure


def take_turns(alternatives: Mapping[str, Measure], repeats: int) -> dict[str, Timing]:
    """Measure the alternatives in turn: one warm-up round, then `repeats` rounds."""
    _round(alternatives)
    return _timings([_round(alternatives) for _ in range(repeats)])


def timings_by(repeats: Iterable[tuple[Key, float]]) -> dict[Key, Timing]:
    """The timing of each alternative, from the name and the seconds of each repeat."""
    seconds_by_name: defaultdict[Key, list[float]] = defaultdict(list)
    for name, seconds in repeats:
        seconds_by_name[name].append(seconds)
    return {name: Timing(tuple(seconds)) for name, seconds in seconds_by_name.items()}


def are_too_few(a: Timing, b: Timing) -> bool:
    """Whether either timing has too few repeats for a comparison."""
    return min(len(a.seconds), len(b.seconds)) < MIN_REPEATS


def differs(a: Timing, b: Timing) -> bool:
    """Whether a difference was measured: both have enough repeats, and the medians are further
    apart than the wider of the spreads.
    """
    return not are_too_few(a, b) and abs(a.median - b.median) > max(a.width, b.width)


def fastest(timings: Mapping[Key, Timing]) -> Key:
    """The key of the alternative with the smallest median; the first one in a tie."""
    return min(timings, key=lambda name: timings[name].median)


def comparison(a: Timing, b: Timing) -> str:
    """How much faster `a` is than `b`: "1.43 times as fast", or why there is no comparison."""
    return f"{b.median / a.median:.2f} times as fast" if differs(a, b) else no_comparison(a, b)


def no_comparison(a: Timing, b: Timing) -> str:
    """Why there is no comparison: no difference was measured, or there are too few repeats."""
    return TOO_FEW if are_too_few(a, b) else NO_DIFFERENCE


def _round(alternatives: Mapping[str, Measure]) -> dict[str, float]:
    return {name: measure() for name, measure in alternatives.items()}


def _timings(rounds: Iterable[Mapping[str, float]]) -> dict[str, Timing]:
    return timings_by(repeat for round_ in rounds for repeat in round_.items())


def with_spread(timing: Timing, written: Callable[[float], str]) -> str:
    """The median, followed by the quartiles in brackets if they differ."""
    if timing.low == timing.high:
        return written(timing.median)
    return f"{written(timing.median)} ({written(timing.low)}–{written(timing.high)})"


def ms(seconds: float) -> str:
    """Milliseconds without the unit: 0, 0.123, 1.23, 12.3, 123."""
    value = MILLI * seconds
    size = abs(value)
    digits = 0 if not size else 3 if size < 1 else 2 if size < 10 else 1 if size < 100 else 0
    return f"{value:,.{digits}f}"


def in_ms(timing: Timing) -> str:
    """A timing in milliseconds: "12.3 ms (12.1–12.6)"."""
    if timing.low == timing.high:
        return f"{ms(timing.median)} ms"
    return f"{ms(timing.median)} ms ({ms(timing.low)}–{ms(timing.high)})"


def repeats_words(timings: Iterable[Timing]) -> str:
    """How these timings were measured, to end a sentence."""
    count = min((len(timing.seconds) for timing in timings), default=0)
    if count <= 1:
        return f"measured once, {TOO_FEW}"
    few = f", {TOO_FEW}" if count < MIN_REPEATS else ""
    return f"medians of {counted(count, 'repeat')}, measured{few}"


def ratio_words(timing: Timing, first: Timing) -> str:
    """A timing as a multiple of the first: "2.2×", or why they cannot be compared."""
    if not differs(timing, first):
        return no_comparison(timing, first)
    return times(timing.median / first.median)
