"""What the app's board is sent about a finished run at another threshold or growth step r; other
boards make it themselves (eab/board/static/what_if_messages.js). `eab.what_if.resimulate` needs
torch, so it is imported only when it is used.
"""

import math
from typing import Any, Final

from eab.config import AUTO, R_STEPS, AllocationStep
from eab.figures.run_comparison import (
    exactness_sentence,
    marks,
    rows_sentence,
    tree_change_sentence,
)
from eab.run import RunFold, RunState, fold_prefix

_STEP: Final = 0.01  # nats


def growth_steps(run: RunState) -> list[AllocationStep]:
    """The growth steps to choose from, including the run's own."""
    numbers: set[int] = {r for r in (*R_STEPS, run.started.config.r) if r != AUTO}
    return [AUTO, *sorted(numbers)]


def chosen(
    run: RunState, threshold: float | None, r: str | int | None
) -> tuple[float | None, AllocationStep]:
    """Settings that can be shown, from those that a board asked for: a threshold (nats; None as
    recorded) and a growth step.
    """
    then = run.started
    step = next((step for step in growth_steps(run) if str(step) == str(r)), then.config.r)
    if threshold is not None:
        threshold = round(min(max(threshold, 0.0), _highest_threshold(run)), 2)
    return None if threshold == round(then.threshold_nats, 2) else threshold, step


def recomputed(
    recorded: RunState, threshold: float | None, r: AllocationStep
) -> tuple[RunFold, dict[str, Any]]:
    """The run with these settings, and additional fields for the message to the board.

    Raises:
        ConfigError, RecordError: As `eab.what_if.resimulate`.
    """
    from eab.what_if.resimulate import resimulate

    result = resimulate(recorded.events, threshold, r)
    state = fold_prefix(result.events)
    run = state.started_run()
    change = [
        tree_change_sentence(recorded, run),
        exactness_sentence(
            run, result.unknowns, f"press “Run at {run.started.threshold_nats:.2f}”"
        ),
    ]
    notes = {"entropy": " ".join(["Recomputed from the recording.", *change])}
    if r != recorded.started.config.r:
        notes["memory"] = rows_sentence(recorded.events, result.events)
    return state, {
        "what_if": f"{threshold} {r}",
        "unknowns": marks(run, result.unknowns),
        "notes": notes,
        "autoplay": False,
    }


def _highest_threshold(run: RunState) -> float:
    """A threshold (nats) above every entropy of the run, at which it does not fork."""
    highest = math.ceil(run.highest_entropy / _STEP) * _STEP
    return max(round(run.started.threshold_nats, 2), highest) + _STEP
