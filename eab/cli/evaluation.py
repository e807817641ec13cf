"""The command `eab evaluate`: its progress bar and its table in the terminal."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.progress import track
from rich.table import Table
from rich.text import Text

from eab.cli.progress import bar_console
from eab.formatting import listed
from eab.labs.tuning.evaluation import Row
from eab.labs.tuning.evaluation_report import (
    ROW_HEADINGS,
    EvaluationReport,
    report_rows,
    verdict,
    written,
)


def with_progress(rows: Iterator[Row], questions: int) -> list[Row]:
    """The rows, made with a progress bar on stderr."""
    console = bar_console()
    total, quiet = 3 * questions, console.quiet
    return [*track(rows, "answering", total, console=console, transient=True, disable=quiet)]


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
