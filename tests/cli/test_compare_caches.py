"""eab compare-caches, run as people run it."""

import json
import subprocess
import sys
from pathlib import Path

from command_line import eab

from eab.labs.variants.results import CACHES

PROMPT = "I tossed a coin and it landed on"


def test_compare_caches_prints_a_table_and_the_same_as_json(tmp_path: Path) -> None:
    file = tmp_path / "caches.json"
    out = eab("compare-caches", PROMPT, "--max-new-tokens", "6", "--json", str(file))
    assert out.returncode == 0, out.stderr
    for word in (
        *CACHES,
        "bytes copied",
        "allocations",
        "All measured",
        "The same tokens with 4 caches.",
    ):
        assert word in out.stdout
    value = json.loads(file.read_text())
    assert value["agreed"] is True
    costs = {cost["variant"]: cost for cost in value["variants"]}
    assert tuple(costs) == CACHES
    assert all(cost["seconds"] > 0 and cost["ended"] == "finished" for cost in costs.values())
    assert costs["deep-copy"]["most_held_bytes"] > costs["concat-cow"]["most_held_bytes"] > 0
    assert costs["recompute"]["most_held_bytes"] == 0
    assert costs["recompute"]["tokens_through_model"] > costs["tree"]["tokens_through_model"]
    assert [agreement["first_difference"] for agreement in value["agreements"]] == [None] * 3


def test_compare_caches_to_standard_output_is_json_alone() -> None:
    out = eab("compare-caches", PROMPT, "--max-new-tokens", "2", "--json", "-")
    assert json.loads(out.stdout)["prompt"] == PROMPT


def test_a_cache_that_fails_or_reads_differently_is_said_with_exit_code_1() -> None:
    code = (
        "import torch; from eab.cli import commands; from eab.caches.concat_cow import ConcatCowCache as broken\n"
        "honest = broken._update\n"
        "broken._update = lambda self, *arguments: tuple(part.flip(1) for part in honest(self, *arguments))\n"
        "commands.main()"
    )
    command = [sys.executable, "-c", code, "compare-caches", "The cat", "--max-new-tokens", "3"]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert out.returncode == 1
    assert "concat-cow gives other results" in " ".join(out.stderr.split())
    assert "Traceback" not in out.stderr
    full = eab(
        "compare-caches",
        "word " * 300,
        "--max-new-tokens",
        "40",
        "--kv-limit-mib",
        "3",
        "--threshold",
        "0",
    )
    assert full.returncode == 1
    assert "deep-copy failed: the KV cache needs" in " ".join(full.stderr.split())
