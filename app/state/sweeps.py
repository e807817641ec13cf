"""The comparisons of the pages that try the settings in variants, and how far one of them is."""

from typing import Final

from app.server import bundled_runs
from app.server.live_run import LiveSweep
from app.state import tab
from app.state.slot import Slot
from eab.analysis.sweep import Sweep
from eab.config import BranchingConfig
from eab.figures.captions import ENDINGS
from eab.formatting import counted

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
    place.show(tab.worker().compare(prompt, config, model_name, empty, tab.owner()))


def progress(live: LiveSweep) -> tuple[float, str]:
    """How far a live comparison is, as a share and in words."""
    if (position := tab.not_moving(live)) is not None:
        return position
    with live.lock:
        return _share_and_words(live)


def _share_and_words(live: LiveSweep) -> tuple[float, str]:
    sweep, steps = live.state, live.config.max_new_tokens
    all_of_them = counted(len(sweep.variants), sweep.kind)
    if not live.active:
        return 1.0, f"{ENDINGS[live.ending[0]]}: {len(sweep.pairs)} of {all_of_them}"
    run = sweep.begun
    if not run:
        return 0.0, "Warming up"
    step = sweep.current_step
    share = (run - 1 + min(1.0, step / steps)) / len(sweep.variants)
    return share, f"{sweep.current} ({run} of {all_of_them}): step {step} of {steps}"
