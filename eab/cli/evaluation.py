"""The command `eab evaluate`."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console, Group, RenderableType
from rich.progress import track
from rich.table import Table
from rich.text import Text

from eab.analysis.answer_parts import check_part
from eab.cli import options, progress
from eab.config import BranchingConfig
from eab.formatting import listed
from eab.labs.measurement import Report, Values, dumps
from eab.labs.tuning.evaluation_report import (
    EVALUATION,
    errors_table,
    evaluated,
    scores_table,
    verdict,
)
from eab.labs.tuning.measure import load_rule
from eab.labs.tuning.prompt_sets import QUESTIONS, read_questions
from eab.record.files import write_table


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
    from eab.labs.tuning.evaluation import answer_rows
    from eab.models.machine import describe_machine

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
