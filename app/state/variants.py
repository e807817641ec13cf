"""The comparisons that one browser tab shows: one prompt under several settings."""

from functools import partial
from typing import Final

from app.server.live_run import LiveVariants
from app.state.process import owner, worker
from app.state.slot import Slot
from eab.analysis.variants import VariantRuns
from eab.config import BranchingConfig
from eab.lessons import bundled_runs


def _has_runs(live: LiveVariants) -> bool:
    """Whether there is a run of every variant; repeats for the times may still be made."""
    return live.state.complete


CACHES: Final = Slot(
    "cache_variants",
    VariantRuns,
    bundled_runs.caches,
    accepts=lambda live: live.state.kind == "cache",
    drawable=_has_runs,
)
DRAFT_LENGTHS: Final = Slot(
    "draft_length_variants",
    VariantRuns,
    bundled_runs.draft_lengths,
    accepts=lambda live: live.state.kind == "draft length",
    drawable=_has_runs,
)


def start(
    slot: Slot[VariantRuns],
    prompt: str,
    config: BranchingConfig,
    model_name: str,
    empty: VariantRuns,
) -> None:
    """Start a comparison in this slot; the one before it is stopped.

    Args:
        slot: Where it is shown.
        prompt: The prompt of all its runs.
        config: The settings that all its runs share.
        model_name: The model, as `app.server.model_cache` names it.
        empty: The comparison to fill: its variants.
    """
    slot.begin(partial(worker().start_variants, prompt, config, model_name, empty, owner()))
