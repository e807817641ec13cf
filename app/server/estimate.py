"""What a run will take at most, from its settings and from the earlier runs of its model."""

from collections.abc import Iterable
from typing import Any

from app.server.live_run import LiveTask
from eab.config import BranchingConfig
from eab.labs.tuning.report import TuningReport


def most_tokens(config: BranchingConfig) -> int:
    """How many tokens a run generates at most: every path in every step."""
    return config.max_paths * config.max_new_tokens


def seconds(
    config: BranchingConfig, model_name: str, earlier: Iterable[LiveTask[Any]]
) -> float | None:
    """How long a run takes if it takes all its steps, at the pace of the run of this model with the
    nearest path limit, since a step takes longer with more paths; None if none was timed.
    """
    timed: list[LiveTask[Any]] = [
        live
        for live in earlier
        if live.model_name == model_name
        and live.turns
        and live.job.kind == "run"  # a probe has one path, which is faster than a tree
    ]
    if not timed:
        return None
    nearest = min(
        reversed(timed), key=lambda live: abs(live.request.config.max_paths - config.max_paths)
    )
    pace: float = nearest.seconds / nearest.turns
    return config.max_new_tokens * pace


def sweep_seconds(
    least: int,
    most: int,
    config: BranchingConfig,
    model_name: str,
    earlier: Iterable[LiveTask[Any]],
) -> float | None:
    """About how long a sweep takes if half of the runs between `least` and `most` are needed, at
    the pace of the newest sweep with this model, per cell and per token of its length limit.
    """
    for live in reversed(list(earlier)):
        report = live.state
        if live.model_name == model_name and isinstance(report, TuningReport) and not live.active:
            runs = sum(cell.made == "run" for cell in report.cells)
            if runs and live.seconds:
                pace: float = live.seconds / (runs * live.request.config.max_new_tokens)
                return (least + most) / 2 * config.max_new_tokens * pace
    return None
