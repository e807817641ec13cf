"""The command `eab batch`: many prompts through one scheduler, in shared forward passes."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eab.cli import options, progress
from eab.cli.batch_folder import TABLE, BatchFolder
from eab.cli.batch_lines import BatchLine, read_lines
from eab.errors import EabError
from eab.formatting import counted
from eab.record.prompt_lines import raise_if_wrong

if TYPE_CHECKING:
    from eab.engine.many_runs import ActiveRun, ManyRuns
    from eab.models.base import LanguageModel


@options.with_settings(make=options.given_settings)
@options.with_model
def batch(
    prompts: Annotated[
        str,
        typer.Argument(
            help="JSON lines: objects with a prompt, an optional id and any settings. Or a .txt "
            "file with one prompt per line. - reads JSON lines from standard input."
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Folder for one run file per prompt and a table of all samples.")
    ],
    config: dict[str, Any],
    source: options.ModelOptions,
    draft: options.Draft = "embedded-draft",
    prefix_cache: options.PrefixCache = True,
) -> None:
    """Generate from many prompts together. Repeating the command makes only the missing runs.

    The settings below apply to all lines that do not set them.
    """
    from eab.engine.many_runs import ManyRuns

    lines = read_lines(prompts, config)
    folder = BatchFolder(out)
    drafts = any(line.request.config.drafter == "model" for line in lines)
    drafting = progress.load_draft(draft, source) if drafts else None
    language_model = progress.load(source)
    raise_if_wrong(prompts, _request_problems(language_model, lines))
    left, problems = folder.unfinished(lines, language_model.card)
    raise_if_wrong(prompts, problems)
    progress.note(line.request for line in left)
    made = _BatchProgress(len(lines) - len(left), len(left))
    with closing(folder):
        prefixes = progress.prefixes_of(language_model, prefix_cache)
        runs: ManyRuns[BatchLine] = ManyRuns(language_model, drafting, prefixes)
        _make(runs, left, made, folder)
    _report(folder, made)


@dataclass(slots=True)
class _BatchProgress:
    there: int  # runs that were already finished before this command
    left: int  # runs that were not
    finished: int = 0  # how many of `left` have finished since
    # the runs of `left` that failed, with the reason
    failures: list[str] = field(default_factory=list)

    @property
    def stopped(self) -> int:
        """The number of runs left unfinished by Ctrl-C."""
        return self.left - self.finished - len(self.failures)

    def __str__(self) -> str:
        ended = self.there + self.finished + len(self.failures)
        return f"{ended:,} of {counted(self.there + self.left, 'run')}"


def _request_problems(model: "LanguageModel", lines: Sequence[BatchLine]) -> list[str]:
    from eab.engine.build import check_request

    problems: list[str] = []
    for line in lines:
        try:
            check_request(model, line.request)
        except EabError as error:
            problems.append(f"line {line.number}: {error}")
    return problems


def _make(
    runs: "ManyRuns[BatchLine]",
    lines: Sequence[BatchLine],
    made: _BatchProgress,
    folder: BatchFolder,
) -> None:
    """Make these runs, several at a time, and save each when it has finished; Ctrl-C stops."""
    steps_ended = 0
    for line in lines:
        runs.add(line, line.request)
    with progress.interrupt_flag() as interrupted, progress.progress_bar() as bar, closing(runs):
        task = bar.add_task("", total=sum(line.request.config.max_new_tokens for line in lines))
        while runs.busy and not interrupted.is_set():
            for run in runs.step():
                _finish(run, made, folder)
                steps_ended += run.tag.request.config.max_new_tokens
            for run in runs.active:
                folder.note(run.tag, run.events)
            steps = steps_ended + sum(run.step for run in runs.active)
            bar.update(task, completed=steps, description=str(made))


def _finish(run: "ActiveRun[BatchLine]", made: _BatchProgress, folder: BatchFolder) -> None:
    if run.problem:
        made.failures.append(f"{run.tag}: {run.problem}")
        folder.leave(run.tag)
    else:
        folder.save(run.tag, run.events)
        made.finished += 1


def _report(folder: BatchFolder, made: _BatchProgress) -> None:
    """Write the table and report the runs; RunsError for failures, Exit after Ctrl-C."""
    if made.finished or made.there:
        samples = folder.save_table()
        before = f" ({made.there:,} of them earlier)" if made.there else ""
        print(
            f"{counted(made.there + made.finished, 'run')}{before} in {folder.path}, with "
            f"{counted(samples, 'sample')} in {folder.path / TABLE}."
        )
    failed = "\n  ".join([f"{counted(len(made.failures), 'run')} failed:", *made.failures])
    left = f"Stopped with {counted(made.stopped, 'run')} unfinished. "
    left += "The same command continues with them."
    progress.end_with(failed if made.failures else "", left if made.stopped else "")
