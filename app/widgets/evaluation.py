"""Whether uncertainty scores find wrong answers: a recorded `eab evaluate`."""

from typing import Final

import streamlit as st

from app.widgets.charts import downloads, draw, origin, white_background
from eab.lessons import bundled_runs

ABOUT: Final = """
The embedded model answered questions with known answers in three ways: one tree per question,
independent texts with about as many tokens, and one greedy answer. A score of uncertainty is good
if it is high where the answer is wrong. The **AUROC** is the chance that a wrong answer has a
higher score than a right one: 0.5 is guessing. The **AURAC** is the mean accuracy over all shares
of answered questions, starting with the most certain answers. Intervals (95%) are from resampled
questions.
"""


def show() -> None:
    """Draw the chart, the table, and their origin."""
    from eab.figures.tables import text_table
    from eab.labs.tuning.evaluation_report import ROW_HEADINGS, report_rows, verdict
    from eab.labs.tuning.pictures import evaluation_figure

    report = bundled_runs.evaluation()
    white = white_background()
    draw("", verdict(report), evaluation_figure(report), "evaluation", "recorded", white)
    st.table(text_table(report_rows(report), ROW_HEADINGS))
    st.markdown(ABOUT)
    where = (
        f"embedded, {report.facts:,} questions with known answers, {report.chances:,} with known "
        "distributions"
    )
    origin(where, False, "The command eab evaluate does this with your model and questions.")
    downloads([("Report (JSON)", "evaluation.json", bundled_runs.EVALUATION.read_bytes)])
