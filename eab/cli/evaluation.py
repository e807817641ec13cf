"""The command `eab evaluate`: its progress bar and its table in the terminal."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.progress import track
from rich.table import Table
from rich.text import Text

from eab.cli.progress import bar_console
from eab.formatting import listed
from eab.labs.measurement import Report, Values
from eab.labs.tuning.evaluation_report import errors_table, scores_table, verdict


def with_progress(rows: Iterator[Values], questions: int) -> list[Values]:
    """The rows, made with a progress bar on stderr."""
    console = bar_console()
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
