"""The comparisons that one browser tab shows: one prompt under several settings."""

from collections.abc import Iterator
from typing import Final

from app.server.job import Job, JobContext
from app.server.live_run import LiveTask
from app.state.slot import Slot
from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.labs.variants.results import REPEATS, VariantEvent, VariantRuns
from eab.lessons import bundled_runs


def _has_runs(live: LiveTask[VariantRuns]) -> bool:
    """Whether there is a run of every variant; repeats for the times may still be made."""
    return live.state.complete


CACHES: Final = Slot(
    "cache_variants",
    VariantRuns,
    bundled_runs.caches,
    _has_runs,
    accepts=lambda live: live.job.kind == "cache",
)
DRAFT_LENGTHS: Final = Slot(
    "draft_length_variants",
    VariantRuns,
    bundled_runs.draft_lengths,
    _has_runs,
    accepts=lambda live: live.job.kind == "draft length",
)


def comparison_job(
    prompt: str, config: BranchingConfig, model_name: str, empty: VariantRuns
) -> Job[VariantRuns]:
    """A run of each variant of an empty comparison, then repeats in turn, for the times."""
    variants = empty.variants
    drafters = [settings.get("drafter", config.drafter) for settings in variants.values()]

    def begin(context: JobContext) -> Iterator[VariantEvent]:
        from eab.labs.variants.measure import run_variants

        return run_variants(context.model, context.requests[0], variants, context.draft)

    return Job(
        empty.kind,
        model_name,
        empty,
        begin,
        requests=(Request(prompt, config),),
        max_turns=config.max_new_tokens * len(variants) * (1 + REPEATS),
        needs_draft="model" in drafters,
    )
