"""From events to the state of a run: `fold(events) -> Run`. Replay needs no more than this.

Every prefix of an event list folds, so a run that continues, was stopped or failed is only shorter.
"""

from eab.run.folding import RunFold, fold, fold_prefix
from eab.run.state import RunState
from eab.run.tree import Path, PathStatus, Sample, Step, Token

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
]
