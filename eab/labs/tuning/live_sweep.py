"""A sweep made for a page that follows it."""

from collections.abc import Iterator, Sequence

from eab.errors import RecordError
from eab.events import Progressed, RunEnded
from eab.formatting import human_seconds
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.prompt_sets import TuningPrompt
from eab.labs.tuning.report import Began, ReportEvent, plan_of
from eab.labs.tuning.sweeping import SweepStep, sweep
from eab.models.base import LanguageModel
from eab.models.machine import describe_machine


def report_sweep(
    model: LanguageModel,
    prompts: Sequence[TuningPrompt],
    grid: Grid,
    known: Sequence[Cell] = (),
) -> Iterator[ReportEvent]:
    """Make all cells of a grid, as `sweep`; the end is `failed` if a cell could not be made.

    RecordError if the known cells, of a sweep that was stopped, are not those of this model.
    """
    failures: list[str] = []
    machine = describe_machine(model.card.device)
    for number, step in enumerate(sweep(model, prompts, grid, known=known)):
        if number == 0:
            if step.done < len(known):
                raise RecordError(
                    "the cells so far were made with another model or number format than this "
                    "server's, or with another memory limit, so the sweep cannot go on here. Run "
                    "makes all cells"
                )
            card, plan = model.card, plan_of(prompts, grid)
            yield Began(card.full_name, card.dtype, machine, step.total, plan)
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
