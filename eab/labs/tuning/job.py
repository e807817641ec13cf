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
from eab.labs.tuning.report import SweepEvent, TuningReport, plan_of, sweep_began
from eab.labs.tuning.sweeping import SweepStep, sweep_with

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

    def begin(context: JobContext) -> Iterator[SweepEvent]:
        limited = replace(grid, base=context.requests[0].config)
        return report_sweep(context.model, prompts, limited, known, target)

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
    target: tuple[Wanted, float] | None = None,
) -> Iterator[SweepEvent]:
    """Make the cells of a grid that are not known; the sweep ends as `failed` if any cell failed.

    With a target, it is the pilot of a threshold: cells follow at thresholds between those of the
    grid, as long as `next_threshold` returns one, resimulated from the grid's runs if that is
    exact. RecordError if the known cells, from a stopped sweep, were made with another model.
    """
    from eab.labs.tuning.in_process import InProcess
    from eab.models.machine import describe_machine

    how, card, plan = Measurement(), model.card, plan_of(prompts, grid)
    executor = InProcess(model, how, remember=target is not None)
    cells, failures, made, refining = list[Cell](), list[str](), grid, ""
    for number in range(1 if target is None else 1 + MOST_REFINEMENTS):
        for index, step in enumerate(sweep_with(executor, prompts, made, None, how, known)):
            if number == index == 0:
                _check_known(step, known)
                of = None if target is not None else plan
                machine, done = describe_machine(card.device), len(step.cells)
                yield sweep_began(card.full_name, card.dtype, machine, plan.cells, of, done)
            cells += step.cells
            failures += step.failures
            yield from step.cells
            share = (step.done + step.failed) / step.total
            yield Progressed(1.0 if number else share, refining or _words(step))
        threshold = None if target is None else next_threshold(cells, *target)
        if threshold is None or threshold in made.varied["entropy_threshold"]:  # its cells failed
            break
        made = replace(grid, varied={"entropy_threshold": [threshold]})
        refining = f"Refining: {threshold:g} nats"
    if failures:
        words = f"{counted(len(failures), 'cell')} failed; the first: {failures[0]}"
        yield RunEnded(0, "failed", words)
    else:
        yield RunEnded(0, "finished")


def _check_known(first: SweepStep, known: Sequence[Cell]) -> None:
    if first.done < len(known):
        raise RecordError(
            "the cells so far were made with another model or number format than this server's, "
            "or with another memory limit, so the sweep cannot be resumed here. Press Run to make "
            "all cells"
        )


def _words(step: SweepStep) -> str:
    left = f", about {human_seconds(step.seconds_left)} left" if step.seconds_left else ""
    return f"{step.done:,} of {step.total:,} cells{left}"
