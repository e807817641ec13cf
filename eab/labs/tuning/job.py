"""The job that sweeps settings, or runs the pilot of a threshold, for a page that follows it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from eab.engine.job import Job, JobContext
from eab.errors import RecordError
from eab.events import Progressed, RunEnded
from eab.formatting import counted, human_seconds
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.measure import Measurement
from eab.labs.tuning.prompt_sets import TuningPrompt
from eab.labs.tuning.recommendation import MOST_REFINEMENTS, Wanted, next_threshold
from eab.labs.tuning.report import ReportEvent, SweepBegan, TuningReport, plan_of
from eab.labs.tuning.sweeping import SweepStep, sweep, sweep_with

if TYPE_CHECKING:
    from eab.models.base import LanguageModel

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
        limited = replace(grid, base=context.requests[0].config)
        if target is not None:
            return report_pilot(context.model, prompts, limited, target)
        return report_sweep(context.model, prompts, limited, known)

    configs = tuple(grid.configs())
    # A prompt that is too long for some settings fails only in the cells of those settings.
    base = replace(grid.base, max_new_tokens=min(config.max_new_tokens for config in configs))
    requests = tuple(prompt.request(base) for prompt in prompts)
    return Job(purpose, model_name, TuningReport(), begin, requests, configs)


def report_sweep(
    model: "LanguageModel",
    prompts: Sequence[TuningPrompt],
    grid: Grid,
    known: Sequence[Cell] = (),
) -> Iterator[ReportEvent]:
    """Make all cells of a grid, as `sweep` does; the sweep ends as `failed` if any cell failed.

    RecordError if the known cells, from a stopped sweep, were made with another model.
    """
    from eab.models.machine import describe_machine

    failures: list[str] = []
    machine = describe_machine(model.card.device)
    for number, step in enumerate(sweep(model, prompts, grid, known=known)):
        if number == 0:
            if step.done < len(known):
                raise RecordError(
                    "the cells so far were made with another model or number format than this "
                    "server's, or with another memory limit, so the sweep cannot be resumed here. "
                    "Press Run to make all cells"
                )
            card, plan = model.card, plan_of(prompts, grid)
            yield SweepBegan(card.full_name, card.dtype, machine, step.total, plan, len(step.cells))
        yield from step.cells
        failures += step.failures
        yield Progressed((step.done + step.failed) / step.total, _words(step))
    yield _end(failures)


def report_pilot(
    model: "LanguageModel",
    prompts: Sequence[TuningPrompt],
    grid: Grid,
    target: tuple[Wanted, float],
) -> Iterator[ReportEvent]:
    """Make all cells of a grid of thresholds, then cells at thresholds in between, as long as
    `next_threshold` returns one. These are resimulated from the grid's runs if that is exact.
    """
    from eab.labs.tuning.in_process import InProcess
    from eab.models.machine import describe_machine

    how = Measurement()
    executor = InProcess(model, how, remember=True)
    cells, failures = list[Cell](), list[str]()
    machine, total = describe_machine(model.card.device), plan_of(prompts, grid).cells
    yield SweepBegan(model.card.full_name, model.card.dtype, machine, total)
    varied, shown = grid.varied, ""
    for number in range(1 + MOST_REFINEMENTS):
        for step in sweep_with(executor, prompts, replace(grid, varied=varied), None, how):
            cells += step.cells
            failures += step.failures
            yield from step.cells
            share = (step.done + step.failed) / step.total
            yield Progressed(1.0 if number else share, shown or _words(step))
        threshold = next_threshold(cells, *target)
        if threshold is None or threshold in varied["entropy_threshold"]:  # its cells failed
            break
        varied, shown = {"entropy_threshold": [threshold]}, f"Refining: {threshold:g} nats"
    yield _end(failures)


def _end(failures: Sequence[str]) -> RunEnded:
    if not failures:
        return RunEnded(0, "finished")
    return RunEnded(
        0, "failed", f"{counted(len(failures), 'cell')} failed; the first: {failures[0]}"
    )


def _words(step: SweepStep) -> str:
    left = f", about {human_seconds(step.seconds_left)} left" if step.seconds_left else ""
    return f"{step.done:,} of {step.total:,} cells{left}"
