"""What each cache took, as readable figures beside each other: the same lines for the terminal and
the page.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from eab.analysis.sweep import Sweep
from eab.formatting import human_bytes


class CostLine(NamedTuple):
    """One measure, with a cell per variant."""

    measure: str
    cells: tuple[str, ...]


_MEASURES: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("seconds", "seconds", "{:.2f}".format),
    ("ms per step (median)", "step_seconds", lambda seconds: f"{seconds * 1000:.1f}"),
    ("tokens through the model", "tokens_through_model", "{:,}".format),
    ("bytes at the worst moment", "peak_bytes", human_bytes),
    ("most bytes held", "most_held_bytes", human_bytes),
    ("bytes held at the end", "held_last_bytes", human_bytes),
    ("bytes copied", "copied_bytes", human_bytes),
    ("allocations", "allocations", "{:,}".format),
)
COST_NOTE: Final = "All measured. In brackets: times the first column."


def cost_lines(sweep: Sweep) -> list[CostLine]:
    """All measures of all variants; in brackets how many times the first one's figure."""
    costs = sweep.costs()
    lines = []
    for measure, name, shown in _MEASURES:
        values = [getattr(cost, name) for cost in costs]
        lines.append(
            CostLine(measure, tuple(_beside(value, values[0], shown(value)) for value in values))
        )
    if not all(cost.ended == "finished" for cost in costs):
        lines.append(CostLine("ended", tuple(cost.ended or "unfinished" for cost in costs)))
    return lines


def _beside(value: float, first: float, shown: str) -> str:
    return shown if value == first or not first else f"{shown} ({value / first:.3g}×)"
