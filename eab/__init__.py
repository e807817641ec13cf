"""Entropy-adaptive branching with a copy-on-write KV cache.

Importing this package imports neither torch nor transformers; the names below load what they need when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eab.api import EntropyAdaptiveBranching
    from eab.config import BranchingConfig
    from eab.engine import generate
    from eab.models.loading import load_model
    from eab.record import load, save
    from eab.run import Run, Sample, fold

__all__ = [
    "BranchingConfig",
    "EntropyAdaptiveBranching",
    "Run",
    "Sample",
    "fold",
    "generate",
    "load",
    "load_model",
    "save",
]

_HOME = {
    "BranchingConfig": "eab.config",
    "EntropyAdaptiveBranching": "eab.api",
    "Run": "eab.run",
    "Sample": "eab.run",
    "fold": "eab.run",
    "generate": "eab.engine",
    "load": "eab.record",
    "load_model": "eab.models.loading",
    "save": "eab.record",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'eab' has no attribute {name!r}; it has: {', '.join(__all__)}")
