"""What every laboratory's page shows: the answer, its chart, a table, and downloads."""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from app.state.slot import Entry
from app.widgets.charts import File, csv_file, downloads, draw
from eab.labs.measurement import Lab, Report, dumps, rows_table


def answer(
    lab: Lab, shown: Entry[Report], white: bool = False, figure: Any = None, title: str = ""
) -> None:
    """Draw the answer above its chart; `figure` is for a laboratory that describes no chart."""
    from eab.labs.charts import chart_figure

    if lab.chart is not None:
        figure = chart_figure(lab.chart(shown.state))
    draw(title, lab.answer(shown.state), figure, lab.name, shown.key, white)


def numbers(lab: Lab, shown: Entry[Report], files: Sequence[File] = ()) -> None:
    """Draw the table, and downloads of all rows."""
    from eab.figures.tables import text_table

    report = shown.state
    headings, *rows = lab.table(report) or [()]
    if rows:
        st.table(text_table(rows, headings))
        st.caption(lab.note)
    tables = [
        csv_file(name.capitalize(), f"{lab.name}-{name}.csv", rows_table, report, name, lab.units)
        for name in report.tables
    ]
    if report.began is not None:
        tables.append(("Report (JSON)", f"{lab.name}.json", lambda: dumps(report, lab.units)))
    downloads([*files, *tables])
