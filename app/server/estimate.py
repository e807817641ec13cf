"""What a run will take at most, from its settings and from the earlier runs of its model.

Knows nothing of Streamlit.
"""

from collections.abc import Iterable
from typing import Any

from app.server.live_run import LiveTask
from eab.config import BranchingConfig
from eab.run import RunFold


def most_tokens(config: BranchingConfig) -> int:
    """How many tokens a run generates at most: every path in every step."""
    return config.max_paths * config.max_new_tokens


def seconds(
    config: BranchingConfig, model_name: str, earlier: Iterable[LiveTask[Any]]
) -> float | None:
    """How long a run takes if it takes all its steps.

    Args:
        config: Its settings.
        model_name: Its model.
        earlier: What was made in this process, the oldest first. The pace is that of the run of
            this model whose limit of paths is nearest, since a step takes longer with more paths.

    Returns:
        Seconds; None if no run of this model was timed yet.
    """
    timed: list[LiveTask[Any]] = [
        live
        for live in earlier
        if live.model_name == model_name and live.turns and isinstance(live.state, RunFold)
    ]
    if not timed:
        return None
    nearest = min(reversed(timed), key=lambda live: abs(live.config.max_paths - config.max_paths))
    pace: float = nearest.seconds / nearest.turns
    return config.max_new_tokens * pace
