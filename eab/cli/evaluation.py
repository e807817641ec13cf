"""The command `eab evaluate`: progress, the table in the terminal, and files."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.progress import track
from rich.table import Table
from rich.text import Text

from eab.cli.progress import bar_console
from eab.labs.tuning.answering import Answering, Way
from eab.labs.tuning.evaluation import Report, verdict
from eab.labs.tuning.questions import Question
from eab.labs.tuning.scores import Interval
from eab.record.whole_file import write_table


def answer_all(answering: Answering, questions: Sequence[Question]) -> list[Way]:
    """Every way of sampling over all questions, with a progress bar on stderr."""
    console = bar_console()
    steps = track(
        answering.ways(questions),
        "answering",
        total=3 * len(questions),
        console=console,
        transient=True,
        disable=console.quiet,
    )
    ways: list[Way] = []
    for way, answered in steps:
        ways += [way] if answered == 1 else []
    return ways


def report_table(found: Report) -> RenderableType:
    """The report for a terminal; intervals hold 95 % of the bootstrap resamples."""
    scores = Table("sampling", "score", "AUROC", "AURAC")
    for row in found.rows:
        scores.add_row(row.way, row.score, _written(row.auroc), _written(row.aurac))
    errors = Table("sampling", "bias (nats)", "mean absolute error (nats)")
    for error in found.errors:
        errors.add_row(error.way, _written(error.bias), _written(error.absolute))
    parts: list[RenderableType] = []
    if found.rows:
        parts += [
            Text(f"{found.facts} questions with known answers, {found.wrong} answered wrongly:"),
            scores,
        ]
    if found.errors:
        parts += [
            Text(f"Semantic entropy at {found.chances} questions with known distributions:"),
            errors,
        ]
    return Group(*parts, Text(verdict(found)))


def report_json(found: Report, answering: Answering) -> dict[str, Any]:
    """The report with model and settings, as plain JSON values."""
    return {
        "model": asdict(answering.model.card),
        "settings": asdict(answering.config),
        "verdict": verdict(found),
        **asdict(found),
    }


def write_readings(questions: Sequence[Question], ways: Sequence[Way], file: Path) -> None:
    """Write a row per question and way of sampling as Parquet."""
    rows = [
        {
            "sampling": way.name,
            "group": question.group,
            "prompt": question.prompt,
            "true_entropy": question.entropy if question.distribution else None,
            "answer": reading.answer,
            "right": reading.right,
            "tokens": reading.tokens,
            **reading.scores,
        }
        for way in ways
        for question, reading in zip(questions, way.readings, strict=True)
    ]
    write_table(file, pd.DataFrame(rows))


def _written(interval: Interval) -> str:
    return f"{interval.value:.3f}  [{interval.low:.3f}, {interval.high:.3f}]"
