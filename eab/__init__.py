"""Entropy-adaptive branching with a copy-on-write KV cache.

Importing this package imports neither torch nor transformers; each name below loads what it needs
when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eab.analysis.answers import group_answers
    from eab.api import EntropyAdaptiveBranching
    from eab.config import BranchingConfig
    from eab.engine.loop import generate, serve
    from eab.engine.request import Request
    from eab.events import Message
    from eab.labs.tuning.grid import Grid
    from eab.labs.tuning.prompt_sets import read_prompts
    from eab.labs.tuning.sweeping import sweep
    from eab.record import load, save
    from eab.remote.loading import load_model
    from eab.run import Run, Sample, fold
    from eab.share.html_page import save_html
    from eab.share.notebook import explore, show, show_lesson

__all__ = [
    "BranchingConfig",
    "EntropyAdaptiveBranching",
    "Grid",
    "Message",
    "Request",
    "Run",
    "Sample",
    "explore",
    "fold",
    "generate",
    "group_answers",
    "load",
    "load_model",
    "read_prompts",
    "save",
    "save_html",
    "serve",
    "show",
    "show_lesson",
    "sweep",
]

_HOME = {
    "BranchingConfig": "eab.config",
    "EntropyAdaptiveBranching": "eab.api",
    "Grid": "eab.labs.tuning.grid",
    "Message": "eab.events",
    "Request": "eab.engine.request",
    "Run": "eab.run",
    "Sample": "eab.run",
    "explore": "eab.share.notebook",
    "fold": "eab.run",
    "generate": "eab.engine.loop",
    "group_answers": "eab.analysis.answers",
    "load": "eab.record",
    "load_model": "eab.remote.loading",
    "read_prompts": "eab.labs.tuning.prompt_sets",
    "save": "eab.record",
    "save_html": "eab.share.html_page",
    "serve": "eab.engine.loop",
    "show": "eab.share.notebook",
    "show_lesson": "eab.share.notebook",
    "sweep": "eab.labs.tuning.sweeping",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'eab' has no attribute {name!r}; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
