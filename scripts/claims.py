"""The comparisons behind the sentences of a measurement, and whether they may be published."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from eab.formatting import counted
from eab.labs.batching import timings, total_seconds
from eab.labs.bmc import (
    Experiment,
    are_comparable,
    compared_r,
    overheads,
    predicted_r,
    rejection_pairs,
    size_overheads,
)
from eab.labs.drafts import draft_length_results, plain_and_drafted
from eab.labs.measurement import Report
from eab.labs.quantization import rounded_formats, step_timings
from eab.labs.variants import costs_of
from eab.timing import MIN_REPEATS, Timing, are_too_few, differs, fastest

# A spread of more than this share of the median shows that something disturbed the machine.
DISTURBED: Final = 0.3


class Claim(NamedTuple):
    """Two timings that a page compares in a sentence."""

    what: str
    a: Timing
    b: Timing


def objections(claims: Iterable[Claim]) -> list[str]:
    """Why these timings should not be published, one sentence each.

    There must be enough repeats. A claimed difference is larger than both spreads by definition
    (`differs`). A denied difference must not be hidden by a disturbed machine.
    """
    problems = []
    for what, a, b in claims:
        disturbed = any(timing.width > DISTURBED * timing.median for timing in (a, b))
        if are_too_few(a, b):
            count = min(len(a.seconds), len(b.seconds))
            problems.append(f"{what}: {count} of at least {MIN_REPEATS} repeats")
        elif not differs(a, b) and disturbed:
            width = max(a.width, b.width)
            problems.append(
                f"{what}: the spread ({1000 * width:.3g} ms) is more than {DISTURBED:.0%} of the "
                "median, too wide to show that there is no difference"
            )
    return problems


def of_caches(report: Report) -> list[Claim]:
    """Each cache against the first one."""
    first, *others = costs_of(report)
    return [
        Claim(
            f"time per step, {cost.variant} against {first.variant}",
            cost.step_seconds,
            first.step_seconds,
        )
        for cost in others
    ]


def of_draft_lengths(report: Report) -> list[Claim]:
    """Each draft length against plain decoding."""
    plain, drafted = plain_and_drafted(draft_length_results(report))
    return [
        Claim(f"decode steps, {result.name} against plain", result.seconds, plain.seconds)
        for result in drafted
        if plain is not None
    ]


def of_batching(report: Report) -> list[Claim]:
    """The other ways against continuous batching."""
    taken = timings(report, total_seconds)
    return [
        Claim(f"{way} against continuous", timing, taken["continuous"])
        for way, timing in taken.items()
        if way != "continuous"
    ]


def of_formats(report: Report) -> list[Claim]:
    """Each weight format against the weights as loaded."""
    return [
        Claim(
            f"{row['weights']} with {counted(step.rows, 'row')} against as-loaded",
            step.ours,
            step.loaded,
        )
        for row in rounded_formats(report)
        for step in step_timings(report, row["weights"])
    ]


def of_growth(report: Report) -> list[Claim]:
    """Each r named in the sentence against r*."""
    measured, best = overheads(report), predicted_r(report)
    if best is None:
        return []
    return [
        Claim(f"overhead at r = {r} against r* = {best}", measured[r], measured[best])
        for r in compared_r(measured, best)
    ]


def of_rejection(report: Report) -> list[Claim]:
    """r* against concatenation, in seconds per token."""
    return [
        Claim(
            f"r* against concatenating at {rejection:.0%} rejected",
            *(Timing(tuple(1 / rate for rate in rates.seconds)) for rates in pair),
        )
        for rejection, pair in rejection_pairs(report).items()
    ]


def of_sizes(report: Report) -> list[Claim]:
    """The predicted r* against the best r that was tried."""
    return [
        Claim(
            f"{model}, r* = {predicted} against r = {fastest(measured)}",
            measured[predicted],
            measured[fastest(measured)],
        )
        for model, (predicted, measured) in size_overheads(report).items()
        if are_comparable(measured) and predicted != fastest(measured)
    ]


OF_EXPERIMENTS: Final[Mapping[Experiment, Callable[[Report], list[Claim]]]] = {
    "growth": of_growth,
    "rejection": of_rejection,
    "sizes": of_sizes,
}
