"""The job that sweeps settings."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from eab.engine.job import Job, JobContext
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.prompt_sets import TuningPrompt
from eab.labs.tuning.recommendation import Wanted
from eab.labs.tuning.report import ReportEvent, TuningReport

Purpose: TypeAlias = Literal["sweep", "pilot", "check"]


def sweep_job(
    purpose: Purpose,
    grid: Grid,
    prompts: Sequence[TuningPrompt],
    model_name: str,
    known: Sequence[Cell] = (),
    target: tuple[Wanted, float] | None = None,
) -> Job[TuningReport]:
    """A sweep of settings, without the known cells. With a target, it is a pilot."""

    def begin(context: JobContext) -> Iterator[ReportEvent]:
        from eab.labs.tuning.live_sweep import report_pilot, report_sweep

        limited = replace(grid, base=context.requests[0].config)
        if target is not None:
            return report_pilot(context.model, prompts, limited, target)
        return report_sweep(context.model, prompts, limited, known)

    configs = tuple(grid.configs())
    # A prompt that is too long for some settings fails only in the cells of those settings.
    base = replace(grid.base, max_new_tokens=min(config.max_new_tokens for config in configs))
    requests = tuple(prompt.request(base) for prompt in prompts)
    return Job(purpose, model_name, TuningReport(), begin, requests, configs)
