"""The command `eab batch`: many prompts through one scheduler, in shared forward passes.

Each line of the prompt file is a run: a JSON object with `prompt` or `messages` and optionally
`id`, a `preset`, and any settings under their Python names.

The output folder has a run file per finished run, and a table of all samples. A run file appears
when its run has finished, so the folder shows which runs are left. Until then the run is in
`NAME.part.eab`, which remains if the process is killed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from eab import record
from eab.branching.presets import overridden, starting_config
from eab.cli import options, progress
from eab.config import SETTINGS
from eab.engine.request import Request
from eab.errors import ConfigError, EabError, RecordError
from eab.events import Event, ModelCard
from eab.events.chat import prompt_or_messages
from eab.formatting import counted, listed
from eab.record import SUFFIX
from eab.record.files import (
    PART,
    checked_id,
    default_id,
    is_part,
    items_of,
    lines_of,
    make_folder,
    raise_if_wrong,
    write_table,
)
from eab.run import RunState, fold

if TYPE_CHECKING:
    from eab.engine.many_runs import ActiveRun, ManyRuns
    from eab.models.base import LanguageModel


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One run of a batch."""

    number: int  # its line number, from 1
    id: str  # names its run file
    request: Request

    def __str__(self) -> str:
        return f"line {self.number} ({self.id})"


def read_lines(name: str, defaults: Mapping[str, Any]) -> list[BatchLine]:
    """Read the runs from a file or `-`; ConfigError has the reason for each wrong line. `defaults`
    are the settings, and a preset, of the lines that do not set them.
    """
    return items_of(name, lines_of(name), partial(_line, defaults))


def _line(defaults: Mapping[str, Any], number: int, given: dict[str, Any]) -> BatchLine:
    own_id, prompt = given.pop("id", default_id(number)), given.pop("prompt", None)
    prompt, messages = prompt_or_messages(prompt, given.pop("messages", None))
    if not isinstance(prompt, str):
        raise ConfigError(f"prompt is {prompt!r:.40}; every line needs a prompt, as text")
    config = starting_config(**overridden(defaults, given))
    return BatchLine(number, _run_id(own_id), Request(prompt, config, messages=messages))


def _run_id(given: Any) -> str:
    """The id of a line; ConfigError if it is not allowed or names an unfinished run's file."""
    id = checked_id(given)
    if is_part(Path(f"{id}{SUFFIX}")):
        raise ConfigError(
            f"id is {id!r:.40}; what ends in {PART} is the file of an unfinished run. Choose "
            "another id"
        )
    return id


TABLE: Final = "samples.parquet"
_EVERY: Final = 1.0  # seconds between two writes of an unfinished run


class BatchFolder:
    """The run files and the table of a batch."""

    def __init__(self, path: Path) -> None:
        """Make the folder; RecordError if that fails or it is not writable."""
        self.path = path
        self._growing: dict[str, record.RunFile] = {}
        make_folder(path)

    def run_file(self, line: BatchLine) -> Path:
        """The file to which the run of a line is saved."""
        return self.path / f"{line.id}{record.SUFFIX}"

    def note(self, line: BatchLine, events: Sequence[Event]) -> None:
        """Write the new events of a run that continues."""
        if line.id not in self._growing:
            self._growing[line.id] = record.RunFile(self.run_file(line), _EVERY)
        self._growing[line.id].add_new(events)

    def save(self, line: BatchLine, events: Sequence[Event]) -> None:
        """Save a finished run; RecordError if it cannot be written."""
        self.note(line, events)
        try:
            self._growing.pop(line.id).close()
        except RecordError:  # the disk was full but may have room now
            record.save(events, self.run_file(line))

    def leave(self, line: BatchLine) -> None:
        """Keep the partial file of a run that will not finish."""
        if line.id in self._growing:
            self._growing.pop(line.id).abandon()

    def close(self) -> None:
        """Keep the partial files of all runs that have not finished."""
        for file in self._growing.values():
            file.abandon()
        self._growing.clear()

    def unfinished(
        self, lines: Iterable[BatchLine], model: ModelCard
    ) -> tuple[list[BatchLine], list[str]]:
        """The lines without a finished run, and the problems with the files of other lines."""
        left: list[BatchLine] = []
        problems: list[str] = []
        for line in lines:
            try:
                if not self._has_finished(line, model):
                    left.append(line)
            except RecordError as error:
                problems.append(f"line {line.number}: {error}")
        return left, problems

    def _has_finished(self, line: BatchLine, model: ModelCard) -> bool:
        file = self.run_file(line)
        if not file.exists():
            return False
        run = fold(record.load(file))
        other = _other_than_asked(run, line, model)
        if other:
            raise RecordError(
                f"{file} was made with another {listed(other)}. Choose another folder or id, or "
                "delete the file to make it again"
            )
        return run.ended is not None and run.ended.complete

    def save_table(self) -> int:
        """Write the samples of all runs, in order of file name, and return how many there are."""
        from eab.figures.tables import samples_of_runs_table

        table = samples_of_runs_table(self._runs())
        write_table(self.path / TABLE, table)
        return len(table)

    def _runs(self) -> Iterator[tuple[str, RunState]]:
        for file in sorted(self.path.glob(f"*{record.SUFFIX}")):
            if not is_part(file):
                yield file.stem, fold(record.load(file))


def _other_than_asked(run: RunState, line: BatchLine, model: ModelCard) -> list[str]:
    started, request = run.started, line.request
    own = (started.prompt, started.messages, started.continued, started.what_if)
    other = [] if own == (request.prompt, request.messages, 0, "") else ["prompt"]
    other += [
        name for name in SETTINGS if getattr(started.config, name) != getattr(request.config, name)
    ]
    return other if started.model == model else [*other, "model"]


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
