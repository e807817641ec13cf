"""The sweeps that one browser tab shows: one prompt under several settings."""

from typing import Final

from app.server import bundled_runs
from app.state import process
from app.state.slot import Slot
from eab.analysis.sweep import Sweep
from eab.config import BranchingConfig

CACHES: Final = Slot("comparison", bundled_runs.caches, lambda live: live.state.kind == "cache")
DRAFT_LENGTHS: Final = Slot(
    "speculation", bundled_runs.draft_lengths, lambda live: live.state.kind == "draft length"
)


def start(
    place: Slot[Sweep],
    prompt: str,
    config: BranchingConfig,
    model_name: str,
    empty: Sweep,
) -> None:
    """Begin a comparison, which fills `empty`, and show it; the one of this tab that is still going
    is stopped.
    """
    place.stop()
    place.show(process.worker().compare(prompt, config, model_name, empty, process.owner()))
