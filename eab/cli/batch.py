"""The command `eab batch`: many prompts through one scheduler, in shared forward passes."""

from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from eab.cli import options, progress
from eab.cli.batch_folder import TABLE, BatchFolder
from eab.cli.batch_lines import BatchLine, raise_if_wrong, read_lines
from eab.config import BranchingConfig
from eab.errors import EabError, SweepError
from eab.events import Event, Probed, RunEnded, RunStarted
from eab.formatting import counted
from eab.weight_formats import AS_LOADED, AUTO

if TYPE_CHECKING:
    from eab.engine.scheduler import Handle
    from eab.models.base import LanguageModel


@options.with_settings()
def batch(
    prompts: Annotated[
        str,
        typer.Argument(
            help="JSON lines, each an object with a prompt, perhaps an id and any settings; or a "
            ".txt file with a prompt per line; - reads JSON lines from standard input."
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="The folder for a run file per prompt, and a table of all samples.")
    ],
    config: BranchingConfig,
    model: options.Model = "embedded",
    draft: options.Draft = "embedded-draft",
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    weights: options.Weights = AS_LOADED,
    layout: options.Layout = AUTO,
) -> None:
    """Generate from many prompts at once. The same command again makes only what is missing.

    The settings below are those of all lines that do not set them.
    """
    lines = read_lines(prompts, config)
    folder = BatchFolder(out)
    drafts = any(line.request.config.drafter == "model" for line in lines)
    load = partial(progress.load, device=device, dtype=dtype, weights=weights, layout=layout)
    drafting = load(draft) if drafts else None
    language_model = load(model)
    raise_if_wrong(prompts, _impossible(language_model, lines))
    left, problems = folder.unfinished(lines, language_model.card)
    raise_if_wrong(prompts, problems)
    made = _Made(len(lines) - len(left), len(left))
    _make(language_model, drafting, left, made, folder)
    _report(folder, made)


@dataclass(slots=True)
class _Made:
    """What became of the runs of a batch.

    Attributes:
        there: Runs that had been made before.
        left: Runs that were not.
        finished: How many of these are now.
        failures: The others that came to an end, with the reason.
    """

    there: int
    left: int
    finished: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def stopped(self) -> int:
        """Runs that were not finished because of Ctrl-C."""
        return self.left - self.finished - len(self.failures)

    def __str__(self) -> str:
        ended = self.there + self.finished + len(self.failures)
        return f"{ended:,} of {counted(self.there + self.left, 'run')}"


@dataclass(slots=True)
class _InWork:
    """A run in the making, and its events so far."""

    line: BatchLine
    events: list[Event] = field(default_factory=list)

    @property
    def step(self) -> int:
        """The step that it has come to."""
        last = self.events[-1] if self.events else None
        return 0 if last is None or isinstance(last, Probed | RunStarted) else last.step


def _impossible(model: "LanguageModel", lines: Sequence[BatchLine]) -> list[str]:
    """The lines that this model cannot run, each with the reason."""
    from eab.engine.build import check_and_calibrate

    problems: list[str] = []
    for line in lines:
        try:
            check_and_calibrate(model, line.request)
        except EabError as error:
            problems.append(f"line {line.number}: {error}")
    return problems


def _make(
    model: "LanguageModel",
    draft: "LanguageModel | None",
    lines: Sequence[BatchLine],
    made: _Made,
    folder: BatchFolder,
) -> None:
    """Make these runs, several at a time; each is saved when it has finished. Ctrl-C ends it."""
    from eab.engine.scheduler import Scheduler

    waiting = deque(lines)
    in_work: dict[Handle, _InWork] = {}
    steps_ended = 0
    with (
        progress.interrupt_flag() as interrupted,
        progress.progress_bar() as bar,
        closing(Scheduler(model)) as scheduler,
    ):
        task = bar.add_task("", total=sum(line.request.config.max_new_tokens for line in lines))
        while (waiting or in_work) and not interrupted.is_set():
            while waiting and len(in_work) < scheduler.max_running:
                line = waiting.popleft()
                own_draft = draft if line.request.config.drafter == "model" else None
                in_work[scheduler.submit(line.request, draft=own_draft)] = _InWork(line)
            for handle in scheduler.step():
                run = in_work[handle]
                run.events += handle.new_events()
                if handle.ended:
                    del in_work[handle]
                    _finish(run, handle.error, made, folder)
                    steps_ended += run.line.request.config.max_new_tokens
            steps = steps_ended + sum(run.step for run in in_work.values())
            bar.update(task, completed=steps, description=str(made))


def _finish(run: _InWork, error: Exception | None, made: _Made, folder: BatchFolder) -> None:
    """Save a run that has come to its end, or note why it failed."""
    end = run.events[-1] if run.events else None
    if error is not None:
        words = str(error) if isinstance(error, EabError) else repr(error)
        made.failures.append(f"{run.line}: {words}")
    elif isinstance(end, RunEnded) and end.reason == "failed":
        made.failures.append(f"{run.line}: {end.message}")
    else:
        folder.save(run.line, run.events)
        made.finished += 1


def _report(folder: BatchFolder, made: _Made) -> None:
    """Write the table, and say what was made and what was not.

    Raises:
        SweepError: Runs failed.
        typer.Exit: Ctrl-C ended the batch.
    """
    if made.finished or made.there:
        samples = folder.save_table()
        before = f" ({made.there:,} of them before)" if made.there else ""
        print(
            f"{counted(made.there + made.finished, 'run')}{before} in {folder.path}, with "
            f"{counted(samples, 'sample')} in {folder.path / TABLE}."
        )
    failed = "\n  ".join([f"{counted(len(made.failures), 'run')} failed:", *made.failures])
    if made.stopped:
        words = f"Stopped before {counted(made.stopped, 'run')} had finished. The same command "
        words += "goes on with them."
        text = f"{failed}\n{words}" if made.failures else words
        Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(progress.STOPPED)
    if made.failures:
        raise SweepError(f"{failed}\n  The same command tries them again")
