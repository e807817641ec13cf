"""The commands `eab sweep`, many settings on many prompts, and `eab evaluate`, how well scores of
uncertainty find wrong answers.
"""

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.progress import track
from rich.table import Table
from rich.text import Text

from eab.analysis.answer_rules import check_part
from eab.cli import options, progress
from eab.config import SETTINGS, BranchingConfig
from eab.errors import ConfigError
from eab.formatting import counted, human_seconds, listed
from eab.labs.measurement import Report, Values, dumps
from eab.labs.tuning.evaluation_report import (
    EVALUATION,
    errors_table,
    evaluated,
    scores_table,
    verdict,
)
from eab.labs.tuning.frontier import varying
from eab.labs.tuning.grid import Cell, Grid, cells_table
from eab.labs.tuning.measure import PART, SAME_ANSWER, Measurement, load_rule
from eab.labs.tuning.prompt_sets import (
    QUESTIONS,
    SETS,
    TuningPrompt,
    labelled_prompt,
    read_prompts,
    read_questions,
)
from eab.labs.tuning.report import SAMPLES, TABLE
from eab.labs.tuning.sweeping import Executor, SweepStep, sweep_with
from eab.run.record.files import write_table

if TYPE_CHECKING:
    import pandas as pd

MAX_ROWS: Final = 60  # in the terminal's table
MEASURES: Final = (  # columns of the table of cells, with heading and format
    ("tokens", "tokens", "{:.1f}"),
    ("seconds", "seconds", "{:.3f}"),
    ("paths", "texts", "{:.1f}"),
    ("distinct_answers", "answers", "{:.2f}"),
    ("probability_seen", "seen", "{:.1%}"),
    ("distribution_error", "error", "{:.3f}"),
    ("correct", "correct", "{:.1%}"),
    ("brier", "Brier", "{:.3f}"),
    ("label", "label", "{:.1%}"),
    ("label_width", "bounds", "{:.1%}"),
)


@options.with_grid
@options.with_model
def sweep(
    prompts: Annotated[
        str,
        typer.Argument(
            help=f"A bundled set ({', '.join(SETS)}), or a file: JSON lines with a prompt or "
            "messages and optionally an id, a group, answers or a distribution, and settings; "
            ".csv with the same columns; .txt with one prompt per line; - reads JSON lines from "
            "standard input."
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Folder for the cells, a table of them and the run files.")
    ],
    grid: Grid,
    source: options.ModelOptions,
    draft: options.Draft = "embedded-draft",
    every: Annotated[int, typer.Option(min=1, help="Take every n-th prompt, to save time.")] = 1,
    answers: options.AnswerPart = PART,
    same_answer: options.SameAnswer = SAME_ANSWER,
    label: Annotated[
        str,
        typer.Option(help="Measure how likely texts are that contain this, ignoring case."),
    ] = "",
    prefix_cache: options.PrefixCache = True,
    runs: Annotated[
        bool, typer.Option(help="Save every run as a run file, and a table of all samples.")
    ] = False,
    ray: Annotated[
        str,
        typer.Option(
            help="Run on a Ray cluster: its address, or auto for the running one; auto starts one "
            "on this machine if there is none."
        ),
    ] = "",
    workers: Annotated[
        int,
        typer.Option(min=1, help=("With --ray: number of workers, each of which loads the model.")),
    ] = 2,
) -> None:
    """Run many prompts, with one setting or many. Repeating the command makes only what is missing.

    A setting takes a list (0.3,0.65) or a range (0.2:1.2:0.2); all combinations are run.
    """
    asked = [labelled_prompt(prompt, label) for prompt in read_prompts(prompts)[::every]]
    progress.note(prompt.request(prompt.config(grid.base)) for prompt in asked)
    measurement = Measurement(check_part(answers), same_answer, runs, prefix_cache)
    drafters = {prompt.config(grid.base).drafter for prompt in asked}
    drafts = "model" in drafters.union(grid.varied.get("drafter", ()))
    if ray and drafts:
        raise ConfigError("the drafter model does not work with --ray yet; choose another drafter")
    made = _SweepProgress()
    with _executor(source, draft if drafts else "", measurement, ray, workers) as executor:
        stopped = _make(executor, asked, grid, out, measurement, made)
    _report(out, made, stopped)


@dataclass(slots=True)
class _SweepProgress:
    cells: list[Cell] = field(default_factory=list)
    before: int | None = None
    problems: list[str] = field(default_factory=list)  # the cells that failed, with the reason
    last: SweepStep | None = None

    def take(self, step: SweepStep) -> None:
        """Add the results of a step."""
        self.cells += step.cells
        self.problems += step.failures
        self.before = len(step.cells) if self.before is None else self.before
        self.last = step


@contextmanager
def _executor(
    source: options.ModelOptions, draft: str, measurement: Measurement, ray: str, workers: int
) -> Iterator[Executor]:
    if ray:
        from eab.engine.models.loading import load_model
        from eab.labs.tuning.executors import RayActors

        load = partial(load_model, source.model, source.device, source.dtype, source.weights)
        with RayActors(partial(load, layout=source.layout), measurement, ray, workers) as actors:
            yield actors
        return
    from eab.labs.tuning.executors import InProcess

    drafting = progress.load_draft(draft, source) if draft else None
    yield InProcess(progress.load(source), measurement, drafting)


def _make(
    executor: Executor,
    prompts: Sequence[TuningPrompt],
    grid: Grid,
    out: Path,
    measurement: Measurement,
    made: _SweepProgress,
) -> bool:
    """Make the cells and return whether Ctrl-C stopped that."""
    steps = sweep_with(executor, prompts, grid, out, measurement)
    with progress.interrupt_flag() as interrupted, progress.progress_bar("cell") as bar:
        task = bar.add_task("starting", total=None)
        for step in steps:
            made.take(step)
            bar.update(task, completed=step.done, total=step.total, description=_left(step))
            if interrupted.is_set():
                steps.close()  # writes the table
                return step.done + step.failed < step.total
    return False


def _left(step: SweepStep) -> str:
    if step.seconds_left is None:
        return "starting"
    return f"about {human_seconds(step.seconds_left)} left"


def _report(out: Path, made: _SweepProgress, stopped: bool) -> None:
    """Report the cells; RunsError if some failed, Exit after Ctrl-C."""
    last = made.last
    assert last is not None  # a sweep has at least one step
    if made.cells:
        Console().print(summary(made.cells))
        before = f" ({made.before:,} of them earlier)" if made.before else ""
        print(
            f"{counted(last.done, 'cell')}{before} in {out / TABLE}; {last.resimulated:,} of them "
            f"({last.resimulated / last.done:.0%}) without the model."
        )
        if (samples := out / SAMPLES).exists():
            import pandas as pd

            table = pd.read_parquet(samples, columns=["id"])
            print(f"{counted(len(table), 'sample')} of the runs in {samples}.")
    problems = "\n  ".join([f"{counted(last.failed, 'cell')} could not be made:", *made.problems])
    left = f"Stopped with {counted(last.total - last.done - last.failed, 'cell')} left. "
    left += "Repeat the command to continue."
    progress.end_with(problems if made.problems else "", left if stopped else "")


def summary(cells: Sequence[Cell]) -> RenderableType:
    """One row per combination of settings: means over its prompts and seeds."""
    table, names = cells_table(cells), varying(cell.config for cell in cells)
    shown = [each for each in MEASURES if table[each[0]].notna().any()]
    headings = [SETTINGS[name].option or name.replace("_", " ") for name in names]
    rows = Table(*headings, *(heading for _, heading, _ in shown), "cells")
    groups = table.groupby(names, sort=True) if names else [((), table)]
    for number, (values, group) in enumerate(groups):
        if number < MAX_ROWS:
            rows.add_row(*map(str, values), *_means(group, shown), str(len(group)))
    notes = "Means over prompts and seeds; seconds only for cells that the model ran."
    return Group(rows, Text(notes, style="dim"))


def _means(group: "pd.DataFrame", shown: Sequence[tuple[str, str, str]]) -> list[str]:
    means = {name: group[name].astype(float).mean() for name, _, _ in shown}
    return [
        form.format(means[name]) if math.isfinite(means[name]) else "" for name, _, form in shown
    ]


@options.with_model
def evaluate(
    source: options.ModelOptions,
    questions: Annotated[
        str,
        typer.Argument(
            help="Prompts with known answers: a file (.jsonl, .csv), - or a set. Default: the "
            "questions of the embedded model.",
            show_default=False,
        ),
    ] = "",
    entropy_threshold: Annotated[float, typer.Option(help="Threshold of the tree, in nats.")] = 0.5,
    min_fork_weight: Annotated[
        float, typer.Option(help="Minimum weight of a path to fork.")
    ] = 0.03,
    max_paths: Annotated[int, typer.Option(help="Maximum number of paths of the tree.")] = 12,
    max_new_tokens: Annotated[int, typer.Option(help="Maximum number of tokens per answer.")] = 8,
    seed: Annotated[int, typer.Option(help="Seed of the first question.")] = 0,
    every: Annotated[int, typer.Option(min=1, help="Take every n-th question, to save time.")] = 1,
    answers: options.AnswerPart = "sentence",
    same_answer: options.SameAnswer = "content",
    prefix_cache: options.PrefixCache = True,
    json_file: options.JsonFile = "",
    rows_file: Annotated[
        str, typer.Option("--rows", help="Write one row per question as Parquet.")
    ] = "",
) -> None:
    """Measure how well uncertainty scores tell wrong answers from right ones."""
    import pandas as pd

    from eab.engine.models.machine import describe_machine
    from eab.labs.tuning.measure import answer_rows

    progress.check_writable(json_file, rows_file)
    config = BranchingConfig.from_settings(
        {
            "entropy_threshold": entropy_threshold,
            "min_fork_weight": min_fork_weight,
            "max_paths": max_paths,
            "max_new_tokens": max_new_tokens,
            "seed": seed,
        }
    )
    part, same = check_part(answers), load_rule(same_answer)
    asked = read_questions(questions or str(QUESTIONS))[::every]
    model = progress.load(source)
    prefixes = progress.prefixes_of(model, prefix_cache)
    answered = answer_rows(model, config, asked, part, same, prefixes)
    rows = with_progress(answered, len(asked))
    card, machine = model.card, describe_machine(model.card.device)
    found = Report().collect(evaluated(rows, card, machine, asdict(config)))
    if json_file != progress.STANDARD_STREAM:
        Console().print(report_table(found))
    if json_file:
        progress.write_json(json.loads(dumps(found, EVALUATION.units)), json_file)
    if rows_file:
        write_table(Path(rows_file), pd.DataFrame(rows))


def with_progress(rows: Iterator[Values], questions: int) -> list[Values]:
    """The rows, made with a progress bar on stderr."""
    console = progress.bar_console()
    total, quiet = 3 * questions, console.quiet
    return [*track(rows, "answering", total, console=console, transient=True, disable=quiet)]


def report_table(report: Report) -> RenderableType:
    """The report for a terminal; intervals contain 95% of the bootstrap resamples."""
    about, tables = report.about, list[Table]()
    for headings, *rows in filter(None, (scores_table(report), errors_table(report))):
        tables.append(Table(*headings))
        for row in rows:
            tables[-1].add_row(*row)
    asked = (
        f"{about['questions']} questions with known answers, {about['wrong']} answered wrongly; "
        f"{about['chances']} with known distributions:"
    )
    spent = listed([f"{way} {tokens:,}" for way, tokens in about["tokens"].items()])
    return Group(Text(asked), *tables, Text(f"Tokens: {spent}. {verdict(report)}"))
