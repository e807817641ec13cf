"""What each variant of a sweep took, beside each other: the same table for the terminal and the
page.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from eab.analysis.sweep import Sweep
from eab.formatting import human_bytes, times


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
COST_NOTE: Final = (
    "All measured. The peak includes temporary tensors; bytes held are those between steps. In "
    "brackets: as a multiple of the first column."
)


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
