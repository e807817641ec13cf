"""What each variant of a sweep took, beside each other: the same table for the terminal and the
page.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from eab.analysis.sweep import RunCost, Sweep
from eab.formatting import human_bytes, listed, times


class SweepRow(NamedTuple):
    """One measure, with a cell per variant."""

    measure: str
    cells: tuple[str, ...]


_MEASURES: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("seconds", "seconds", "{:.2f}".format),
    ("ms per step (median)", "step_seconds", lambda seconds: f"{seconds * 1000:.1f}"),
    ("tokens through the model", "tokens_through_model", "{:,}".format),
    ("peak bytes", "peak_bytes", human_bytes),
    ("most bytes held", "most_held_bytes", human_bytes),
    ("bytes held at the end", "held_last_bytes", human_bytes),
    ("bytes copied", "copied_bytes", human_bytes),
    ("allocations", "allocations", "{:,}".format),
)
_CLEARLY_SLOWER: Final = 3.0  # times; one run each cannot tell less from noise
COST_NOTE: Final = (
    "All measured. The peak includes temporary tensors; bytes held are those between steps. In "
    "brackets: as a multiple of the first column."
)


def gain_sentence(sweep: Sweep) -> str:
    """What the first variant, the tree, saves: bytes copied and held, and clear gains in time."""
    costs = sweep.costs()
    if len(costs) < 2:
        return ""
    first = costs[0]
    copied, held, slow = (
        listed([f"{name} {times(ratio)}" for name, ratio in _ratios(costs, measure, least)])
        for measure, least in (
            ("copied_bytes", 1.1),
            ("most_held_bytes", 1.1),
            ("step_seconds", _CLEARLY_SLOWER),
        )
    )
    words = [
        f"The {first.variant} copies {human_bytes(first.copied_bytes)} in the whole run"
        + (f"; {copied} as much." if copied else "."),
        f"It holds at most {human_bytes(first.most_held_bytes)}"
        + (f"; {held} as much." if held else "."),
    ]
    if slow:
        words.append(f"Time per step: {slow} as long; smaller differences may be noise.")
    return " ".join(words)


def _ratios(costs: Sequence[RunCost], measure: str, least: float) -> list[tuple[str, float]]:
    """The variants with more than `least` times as much as the first, and how many times."""
    first = getattr(costs[0], measure)
    ratios = [(cost.variant, getattr(cost, measure) / first) for cost in costs[1:] if first]
    return [(name, ratio) for name, ratio in ratios if ratio > least]


def sweep_rows(sweep: Sweep) -> list[SweepRow]:
    """All measures of all variants, each beside that of the first variant.

    Returns:
        A row per measure; one more, how each run ended, if not all of them finished.
    """
    costs = sweep.costs()
    rows = []
    for measure, name, written in _MEASURES:
        values = [getattr(cost, name) for cost in costs]
        cells = tuple(beside_first(value, values[0], written) for value in values)
        rows.append(SweepRow(measure, cells))
    if not all(cost.ended == "finished" for cost in costs):
        rows.append(SweepRow("ended", tuple(cost.ended or "unfinished" for cost in costs)))
    return rows


def beside_first(value: float, first: float, written: Callable[[float], str]) -> str:
    """The value, and in brackets how many times the first one it is: '8.0 MiB (2.21×)'."""
    unlike = first and value != first
    return f"{written(value)} ({times(value / first)})" if unlike else written(value)
