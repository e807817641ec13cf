"""eab compare-caches: table, JSON and errors."""

import json
from pathlib import Path

import pytest
from command_line import eab_here

from eab.caches.baselines import ConcatCowCache
from eab.labs.variants import CACHES, PROMPT_REUSED

PROMPT = "I tossed a coin and it landed on"
COMPARE = ("compare-caches", "--repeats", "1")


def test_compare_caches_prints_a_table_and_writes_the_same_as_json(tmp_path: Path) -> None:
    file = tmp_path / "caches.json"
    out = eab_here(*COMPARE, PROMPT, "--max-new-tokens", "6", "--json", str(file))
    assert out.returncode == 0, out.stderr
    for word in (*CACHES, "reused", "copied", "allocations", "All 6 runs have the same tokens."):
        assert word in out.stdout
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
