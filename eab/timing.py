"""How long alternatives take: medians of interleaved repeats, with their spread.

The alternatives take turns, so that whatever disturbs the machine disturbs all of them. The first
round is a warm-up and does not count. The spread is the middle half of the repeats. Two medians
differ if their spreads do not overlap; otherwise no difference was measured.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Final, TypeAlias

NO_DIFFERENCE: Final = "no difference measured"
MIN_REPEATS: Final = 5  # before an order can be settled
# A spread of this share of the median: more repeats would hardly narrow it.
NARROW: Final = 0.05

Measure: TypeAlias = Callable[[], float]  # does the work once -> its seconds
Clock: TypeAlias = Callable[[], float]  # seconds, when all work is done


@dataclass(frozen=True, slots=True)
class Timing:
    """The repeats of one measurement, in seconds.

    Attributes:
        seconds: One number per repeat, in the order in which they were measured.
    """

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Half of the repeats took no longer."""
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
    def narrow(self) -> bool:
        """Whether the spread is small beside the median."""
        return self.high - self.low <= NARROW * self.median


def timed(work: Callable[[], object], clock: Clock = time.perf_counter) -> Measure:
    """Make work measurable.

    Args:
        work: What is to be timed.
        clock: Reads the seconds. A GPU needs one that waits for it (see eab.caches.timing.now).
    """

    def measure() -> float:
        start = clock()
        work()
        return clock() - start

    return measure


def take_turns(alternatives: Mapping[str, Measure], repeats: int) -> dict[str, Timing]:
    """Measure the alternatives in turn.

    Args:
        alternatives: By name.
        repeats: How many rounds count, at least 1; one more comes before them.
    """
    _round(alternatives)
    rounds = [_round(alternatives) for _ in range(repeats)]
    return _timings(rounds)


def take_turns_until_settled(
    alternatives: Mapping[str, Measure],
    max_seconds: float,
    clock: Clock = time.perf_counter,
) -> dict[str, Timing]:
    """Measure the alternatives in turn until it is settled which is the fastest, or the time is
    up.

    Args:
        alternatives: By name.
        max_seconds: No round begins later. There are always a warm-up and one round.
        clock: Reads the seconds.
    """
    start = clock()
    _round(alternatives)
    rounds = [_round(alternatives)]
    while clock() - start < max_seconds and not is_settled(_timings(rounds)):
        rounds.append(_round(alternatives))
    return _timings(rounds)


def differs(a: Timing, b: Timing) -> bool:
    """Whether a difference was measured: the spreads do not overlap."""
    return a.high < b.low or b.high < a.low


def fastest(timings: Mapping[str, Timing]) -> str:
    """The name of the alternative with the smallest median; the first one of equals."""
    return min(timings, key=lambda name: timings[name].median)


def is_settled(timings: Mapping[str, Timing]) -> bool:
    """Whether more repeats would hardly change which alternative is the fastest.

    It is settled if each of the others is measurably slower, or so well measured that it makes no
    difference.
    """
    best = timings[fastest(timings)]
    return len(best.seconds) >= MIN_REPEATS and all(
        one is best or differs(one, best) or (one.narrow and best.narrow)
        for one in timings.values()
    )


def comparison(a: Timing, b: Timing) -> str:
    """How much faster `a` is than `b`, in words: "1.43 times as fast", or that no difference was
    measured.
    """
    return f"{b.median / a.median:.2f} times as fast" if differs(a, b) else NO_DIFFERENCE


def _round(alternatives: Mapping[str, Measure]) -> dict[str, float]:
    return {name: measure() for name, measure in alternatives.items()}


def _timings(rounds: list[dict[str, float]]) -> dict[str, Timing]:
    return {name: Timing(tuple(one[name] for one in rounds)) for name in rounds[0]}
