"""A run in one call: from a model and settings, or from a bundled recording by its name."""

from dataclasses import replace
from typing import Any

from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.lessons import bundled_runs
from eab.run import Path, RunState, fold
from eab.run.events import Event


def events_of(
    model: Any,
    prompt: str,
    config: BranchingConfig | None = None,
    draft: Any = None,
    **settings: Any,
) -> list[Event]:
    """The events of a run with this config, in which these settings are replaced."""
    asked = Request(prompt, replace(config or BranchingConfig(), **settings))
    return list(event_stream(model, asked, draft))


def run_of(
    model: Any,
    prompt: str,
    config: BranchingConfig | None = None,
    draft: Any = None,
    **settings: Any,
) -> RunState:
    """The folded run of `events_of` with the same arguments."""
    return fold(events_of(model, prompt, config, draft, **settings))


def bundled(name: str) -> list[Event]:
    """The events of the bundled run in the file <name>.eab."""
    [recording] = [one for one in bundled_runs.recordings() if one.file == f"{name}.eab"]
    return list(bundled_runs.events_of(recording))


def bundled_run(name: str) -> RunState:
    """The bundled run in the file <name>.eab, folded."""
    return fold(bundled(name))


def leaves_at(run: RunState, step: int) -> list[Path]:
    """The paths that are live or finished after this step."""
    return [
        path
        for path in run.paths
        if path.born <= step and not (path.status in ("forked", "pruned") and path.touched <= step)
    ]
