"""The job that compares runs of one prompt under several settings."""

from collections.abc import Iterator

from eab.config import BranchingConfig
from eab.engine.job import Job, JobContext
from eab.engine.request import Request
from eab.labs.variants.results import REPEATS, VariantEvent, VariantRuns


def comparison_job(
    prompt: str, config: BranchingConfig, model_name: str, empty: VariantRuns
) -> Job[VariantRuns]:
    """A run of each variant of an empty comparison, then alternating repeats for the times."""
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
