"""`eab evaluate`: the table, the files, and the error messages."""

import json
from pathlib import Path

import pandas as pd
from command_line import output_of

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
    value = json.loads(out.read_text())
    assert " ".join(value["verdict"].split()) in " ".join(shown.split())
    assert (value["facts"], value["wrong"], value["chances"]) == (2, 1, 1)
    assert set(value["tokens"]) == {"greedy", "tree", "independent"}
    table = pd.read_parquet(rows)
    assert len(table) == 3 * len(QUESTIONS)
    assert table.groupby("sampling")["tokens"].sum().to_dict() == value["tokens"]
