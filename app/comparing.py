"""The comparisons of the pages that try the settings in variants, and how far one of them is."""

from typing import Final

from app import gallery, session
from app.live import LiveComparison
from app.made_here import MadeHere
from eab.comparison import Comparison
from eab.config import BranchingConfig
from eab.figures.sentences import ENDINGS
from eab.words import counted

CACHES: Final = MadeHere("comparison", gallery.caches, lambda live: live.state.kind == "cache")
DRAFT_LENGTHS: Final = MadeHere("speculation", gallery.draft_lengths, lambda live: live.state.kind == "draft length")


def start(
    place: MadeHere[Comparison], prompt: str, config: BranchingConfig, model_name: str, empty: Comparison
) -> None:
    """Begin a comparison, which fills `empty`, and show it; the one of this tab that is still going is stopped."""
    place.stop()
    place.show(session.worker().compare(prompt, config, model_name, empty, session.owner()))


def progress(live: LiveComparison) -> tuple[float, str]:
    """How far a live comparison is, as a share and in words."""
    if (standing := session.not_moving(live)) is not None:
        return standing
    with live.lock:
        return _share_and_words(live)


def _share_and_words(live: LiveComparison) -> tuple[float, str]:
    comparison, steps = live.state, live.config.max_new_tokens
    all_of_them = counted(len(comparison.variants), comparison.kind)
    if not live.active:
        return 1.0, f"{ENDINGS[live.ending[0]]}: {len(comparison.pairs)} of {all_of_them}"
    run = len(comparison.runs)
    if not run:
        return 0.0, "Warming up"
    step = len(comparison.runs[-1].steps)
    share = (run - 1 + min(1.0, step / steps)) / len(comparison.variants)
    return share, f"{comparison.current} ({run} of {all_of_them}): step {step} of {steps}"
