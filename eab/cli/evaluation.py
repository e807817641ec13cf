"""The command `eab evaluate`: its progress bar, its table in the terminal, and its files."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from msgspec import structs
from rich.console import Group, RenderableType
from rich.progress import track
from rich.table import Table
from rich.text import Text

from eab.cli.progress import bar_console
from eab.formatting import listed
from eab.labs.tuning.evaluation import Answering, SamplingResults
from eab.labs.tuning.evaluation_report import (
    ROW_HEADINGS,
    EvaluationReport,
    report_rows,
    verdict,
    written,
)
from eab.labs.tuning.prompt_sets import Question
from eab.record.files import write_table


def answer_all(answering: Answering, questions: Sequence[Question]) -> list[SamplingResults]:
    """Answer all questions with every sampling method, with a progress bar on stderr."""
    console = bar_console()
    steps = track(
        answering.ways(questions),
        "answering",
        total=3 * len(questions),
        console=console,
        transient=True,
        disable=console.quiet,
    )
    ways: list[SamplingResults] = []
    for way, answered in steps:
        ways += [way] if answered == 1 else []
    return ways


def report_table(report: EvaluationReport) -> RenderableType:
    """The report for a terminal; intervals contain 95% of the bootstrap resamples."""
    parts: list[RenderableType] = []
    if report.rows:
        parts += [
            Text(f"{report.facts} questions with known answers, {report.wrong} answered wrongly:"),
            _table(ROW_HEADINGS, report_rows(report)),
        ]
    if report.errors:
        rows = [
            (one.way, written(one.bias), written(one.absolute), f"{one.bias.questions:,}")
            for one in report.errors
        ]
        parts += [
            Text(f"Semantic entropy on {report.chances} questions with known distributions:"),
            _table(("Texts from", "Bias (nats)", "Mean absolute error (nats)", "Questions"), rows),
        ]
    spent = listed([f"{way} {tokens:,}" for way, tokens in report.tokens.items()])
    return Group(*parts, Text(f"Tokens: {spent}. {verdict(report)}"))


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(*headings)
    for row in rows:
        table.add_row(*row)
    return table


def report_json(report: EvaluationReport, answering: Answering) -> dict[str, Any]:
    """The report with model and settings, as plain JSON values."""
    return {
        "model": structs.asdict(answering.model.card),
        "settings": asdict(answering.config),
        "verdict": verdict(report),
        **asdict(report),
    }


def write_readings(
    questions: Sequence[Question], ways: Sequence[SamplingResults], file: Path
) -> None:
    """Write one row per question and sampling method as Parquet."""
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
