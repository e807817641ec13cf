"""`eab evaluate`: the table, the files, and the error messages."""

import json
from pathlib import Path

import pandas as pd
from command_line import output_of

from eab.labs import measurement
from eab.labs.tuning.evaluation_report import verdict

QUESTIONS = [
    {"prompt": "The capital of France is", "answers": ["Paris"]},
    {"prompt": "The capital of Nowhere is", "answers": ["Nothing"]},
    {"prompt": "I tossed a coin and it landed on", "distribution": {"heads.": 0.5, "tails.": 0.5}},
]


def test_the_table_and_the_files_hold_the_same_report(tmp_path: Path) -> None:
    questions, out, rows = (tmp_path / name for name in ("q.jsonl", "out.json", "rows.parquet"))
    questions.write_text("\n".join(map(json.dumps, QUESTIONS)))
    files = ("--json", str(out), "--rows", str(rows))
    shown = output_of("evaluate", questions, "--max-new-tokens", 4, *files)
    report = measurement.load(out)
    about = report.about
    assert " ".join(verdict(report).split()) in " ".join(shown.split())
    assert (about["questions"], about["wrong"], about["chances"]) == (2, 1, 1)
    assert set(about["tokens"]) == {"greedy", "tree", "independent"}
    assert about["settings"]["max_new_tokens"] == 4
    assert (report.began.model, report.complete) == ("embedded", True)
    table = pd.read_parquet(rows)
    assert len(table) == 3 * len(QUESTIONS)
    assert table.groupby("sampling")["tokens"].sum().to_dict() == about["tokens"]
