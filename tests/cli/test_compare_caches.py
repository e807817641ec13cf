"""The commands `eab compare-caches` and `eab evaluate`: what they print and what they write."""

import json
from pathlib import Path

import pandas as pd
import pytest
from command_line import eab_here, output_of

from eab.engine.caches.baselines import ConcatCowCache
from eab.labs import measurement
from eab.labs.tuning.evaluation_report import verdict
from eab.labs.variants import CACHES, PROMPT_REUSED

PROMPT = "I tossed a coin and it landed on"
COMPARE = ("compare-caches", "--repeats", "1")


def test_compare_caches_prints_a_table_and_writes_the_same_as_json(tmp_path: Path) -> None:
    file = tmp_path / "caches.json"
    out = eab_here(*COMPARE, PROMPT, "--max-new-tokens", "6", "--json", str(file))
    assert out.returncode == 0, out.stderr
    for word in (*CACHES, "reused", "copied", "allocations", "All 6 runs have the same tokens."):
        assert word in out.stdout
    assert "…" not in out.stdout, "no number is cut in a terminal of 80 columns"
    value = json.loads(file.read_text())
    assert value["agreed"] is True
    costs = {cost["variant"]: cost for cost in value["variants"]}
    assert tuple(costs) == (*CACHES, PROMPT_REUSED)
    assert all(cost["seconds"] > 0 and cost["ended"] == "finished" for cost in costs.values())
    assert costs["deep-copy"]["most_held_bytes"] > costs["concat-cow"]["most_held_bytes"] > 0
    assert costs["recompute"]["most_held_bytes"] == 0
    assert costs["recompute"]["tokens_through_model"] > costs["tree"]["tokens_through_model"]
    assert [agreement["first_difference"] for agreement in value["agreements"]] == [None] * 5


def test_a_cache_with_different_results_is_reported_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = ConcatCowCache._seen
    monkeypatch.setattr(
        ConcatCowCache,
        "_seen",
        lambda self, *arguments: tuple(part.flip(1) for part in honest(self, *arguments)),
    )
    out = eab_here(*COMPARE, "The cat", "--max-new-tokens", "3")
    assert out.returncode == 1
    assert "concat-cow gives other results" in " ".join(out.stderr.split())


def test_a_cache_that_fails_is_reported_with_exit_code_1() -> None:
    limits = ("--max-new-tokens", "40", "--kv-limit-mib", "3", "--threshold", "0")
    full = eab_here(*COMPARE, "word " * 300, *limits)
    assert full.returncode == 1
    assert "deep-copy failed: the KV cache needs" in " ".join(full.stderr.split())


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
