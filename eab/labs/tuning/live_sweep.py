"""A sweep made for a page that follows it."""

from collections.abc import Iterator, Sequence

from eab.events import Progressed, RunEnded
from eab.formatting import human_seconds
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.prompt_sets import TuningPrompt
from eab.labs.tuning.report import Began, ReportEvent
from eab.labs.tuning.sweeping import SweepStep, sweep
from eab.models.base import LanguageModel
from eab.models.machine import describe_machine


def report_sweep(
    model: LanguageModel, prompts: Sequence[TuningPrompt], grid: Grid
) -> Iterator[ReportEvent]:
    """Make all cells of a grid, as `sweep`; the end is `failed` if a cell could not be made."""
    failures: list[str] = []
    machine = describe_machine(model.card.device)
    for number, step in enumerate(sweep(model, prompts, grid)):
        if number == 0:
            yield Began(model.card.full_name, model.card.dtype, machine, step.total)
        yield from step.cells
        failures += step.failures
        yield Progressed((step.done + step.failed) / step.total, _words(step))
    if failures:
        yield RunEnded(0, "failed", f"{len(failures)} cells failed, the first one: {failures[0]}")
    else:
        yield RunEnded(0, "finished")


def _words(step: SweepStep) -> str:
    left = f", about {human_seconds(step.seconds_left)} left" if step.seconds_left else ""
    return f"{step.done:,} of {step.total:,} cells{left}"
