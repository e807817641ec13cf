"""The sweeps that one browser tab shows: one prompt under several settings."""

from functools import partial
from typing import Final

from app.server import bundled_runs
from app.server.live_run import LiveSweep
from app.state.process import owner, worker
from app.state.slot import Slot
from eab.analysis.sweep import Sweep
from eab.config import BranchingConfig


def _has_runs(live: LiveSweep) -> bool:
    """Whether there is a run of every variant; repeats for the times may still be made."""
    return live.state.complete


CACHES: Final = Slot(
    "cache_sweep",
    Sweep,
    bundled_runs.caches,
    accepts=lambda live: live.state.kind == "cache",
    drawable=_has_runs,
)
DRAFT_LENGTHS: Final = Slot(
    "draft_length_sweep",
    Sweep,
    bundled_runs.draft_lengths,
    accepts=lambda live: live.state.kind == "draft length",
    drawable=_has_runs,
)


def start(
    slot: Slot[Sweep], prompt: str, config: BranchingConfig, model_name: str, empty: Sweep
) -> None:
    """Start a sweep in this slot; the one before it is stopped.

    Args:
        slot: Where it is shown.
        prompt: The prompt of all its runs.
        config: The settings that all its runs share.
        model_name: The model, as `app.server.model_cache` names it.
        empty: The sweep to fill: its variants.
    """
    slot.begin(partial(worker().start_sweep, prompt, config, model_name, empty, owner()))
