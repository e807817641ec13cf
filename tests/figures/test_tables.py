"""Tables for download."""

import csv
import io

import pandas as pd
import pytest

from eab.figures.tables import as_csv


@pytest.mark.parametrize(
    "text", ["=HYPERLINK(1)", "+1", "-1", "@SUM(1)", "\t=1", " =1", "\r\n=1", "|cmd", "\u00a0=1"]
)
def test_no_spreadsheet_takes_a_cell_for_a_formula_and_numbers_stay_numbers(text: str) -> None:
    table = pd.DataFrame({"answer": [text, "a = b"], "log_prob": [-1.5, 2.0]})
    [_, *rows] = csv.reader(io.StringIO(as_csv(table), newline=""))
    assert rows == [[f"'{text}", "-1.5"], ["a = b", "2.0"]]
