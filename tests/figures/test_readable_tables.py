"""The tables on the page have the columns of the files, with readable headings and KiB; the files."""

import csv
import io

import pandas as pd
import pytest
from made_runs import bundled_run
from msgspec import structs
from page_walk import opened

from eab.analysis.answers import group_answers
from eab.figures.tables import (
    answers_table,
    as_csv,
    readable,
    samples_table,
    steps_table,
    tokens_table,
)
from eab.run import RunState


def tables(run: RunState) -> list[pd.DataFrame]:
    answers = answers_table(group_answers(run, "sentence"))
    return [samples_table(run), tokens_table(run), steps_table(run), answers]


def test_every_heading_is_readable_and_no_column_or_row_is_lost() -> None:
    for table in tables(bundled_run("bridge")):
        shown = readable(table)
        assert shown.shape == table.shape
        assert not [heading for heading in shown.columns if "_" in heading]
        assert len(set(shown.columns)) == len(shown.columns)


def test_bytes_are_shown_in_kib() -> None:
    table = steps_table(bundled_run("bridge"))
    assert list(readable(table)["held (KiB)"]) == pytest.approx(list(table["held_bytes"] / 1024))
    assert "held_bytes" in table.columns, "the table of the files is as it was"


def test_a_what_if_run_has_no_column_with_times() -> None:
    run = bundled_run("coin")
    run.started = structs.replace(run.started, what_if="exact")
    assert "time (ms)" not in readable(steps_table(run)).columns


def test_the_tabs_show_readable_headings() -> None:
    page = opened()
    for tab, count in {"Texts": 1, "Answers": 3, "Tokens": 1, "Performance": 1}.items():
        page.remember(results=tab)
        shown = page.table if tab == "Texts" else page.dataframe
        assert len(shown) == count
        for one in shown:
            headings = [*one.value.columns, one.value.index.name or ""]
            assert not [heading for heading in headings if "_" in heading], tab


@pytest.mark.parametrize(
    "text", ["=HYPERLINK(1)", "+1", "-1", "@SUM(1)", "\t=1", " =1", "\r\n=1", "|cmd", "\u00a0=1"]
)
def test_no_spreadsheet_takes_a_cell_for_a_formula_and_numbers_stay_numbers(text: str) -> None:
    table = pd.DataFrame({"answer": [text, "a = b"], "log_prob": [-1.5, 2.0]})
    [_, *rows] = csv.reader(io.StringIO(as_csv(table), newline=""))
    assert rows == [[f"'{text}", "-1.5"], ["a = b", "2.0"]]
