"""Entropy-adaptive branching with a copy-on-write KV cache.

Importing this package imports neither torch nor transformers; each name below is loaded with its
dependencies on first use.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from eab.api.arguments import load_model
    from eab.api.branching import EntropyAdaptiveBranching
    from eab.api.imported import from_samples, runs_from_samples
    from eab.api.many_runs import serve, sweep
    from eab.api.notebook import explore, show, show_lesson
    from eab.api.run import Run, load, save, save_html
    from eab.api.settings import Settings
    from eab.config import BranchingConfig
    from eab.engine.branching.presets import starting_config
    from eab.engine.request import Request
    from eab.errors import EabError, PromptWarning
    from eab.labs.tuning.grid import Grid
    from eab.labs.tuning.prompt_sets import read_prompts
    from eab.run import Sample
    from eab.run.events import Event, Message

__all__ = [
    "BranchingConfig",
    "EabError",
    "EntropyAdaptiveBranching",
    "Event",
    "Grid",
    "Message",
    "PromptWarning",
    "Request",
    "Run",
    "Sample",
    "Settings",
    "explore",
    "from_samples",
    "load",
    "load_model",
    "read_prompts",
    "runs_from_samples",
    "save",
    "save_html",
    "serve",
    "show",
    "show_lesson",
    "starting_config",
    "sweep",
]
__version__ = "1.0.0"

_HOME: Final = {
    "BranchingConfig": "eab.config",
    "EabError": "eab.errors",
    "EntropyAdaptiveBranching": "eab.api.branching",
    "Event": "eab.run.events",
    "Grid": "eab.labs.tuning.grid",
    "Message": "eab.run.events",
    "PromptWarning": "eab.errors",
    "Request": "eab.engine.request",
    "Run": "eab.api.run",
    "Sample": "eab.run",
    "Settings": "eab.api.settings",
    "explore": "eab.api.notebook",
    "from_samples": "eab.api.imported",
    "load": "eab.api.run",
    "load_model": "eab.api.arguments",
    "read_prompts": "eab.labs.tuning.prompt_sets",
    "runs_from_samples": "eab.api.imported",
    "save": "eab.api.run",
    "save_html": "eab.api.run",
    "serve": "eab.api.many_runs",
    "show": "eab.api.notebook",
    "show_lesson": "eab.api.notebook",
    "starting_config": "eab.engine.branching.presets",
    "sweep": "eab.api.many_runs",
}

# OpenMP's threads wait for each other by spinning, and take the processor from the very thread that
# they wait for when a page, a notebook or another program needs one, too: a step may take several
# times as long (benchmarks/engine.py --busy). OpenMP reads this when torch is loaded.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'eab' has no attribute {name!r}; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
