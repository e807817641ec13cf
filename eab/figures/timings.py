"""Timings as text: medians of repeats, with quartiles."""

from collections.abc import Callable, Iterable
from typing import Final

from eab.formatting import counted, times
from eab.timing import MIN_REPEATS, TOO_FEW, Timing, differs, no_comparison

MILLI: Final = 1000.0


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
