"""Fold events into the state of a run: `fold(events) -> RunState`. Replay needs only this.

Every prefix of an event list folds, so a run that is live, was stopped or failed is just shorter.
"""

from eab.run.folding import RunFold, fold, fold_prefix
from eab.run.state import RunState
from eab.run.tree import (
    Path,
    PathStatus,
    Sample,
    Step,
    Token,
    largest_first,
    least_probability,
    log_prob_of,
    mean_entropy_of,
)

__all__ = [
    "Path",
    "PathStatus",
    "RunFold",
    "RunState",
    "Sample",
    "Step",
    "Token",
    "fold",
    "fold_prefix",
    "largest_first",
    "least_probability",
    "log_prob_of",
    "mean_entropy_of",
]
