"""The variant with a tree cache whose prompt is in the prefix cache."""

import pytest

from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.labs.caches import CACHES_LAB
from eab.labs.measure_variants import run_variants
from eab.labs.measurement import LabEvent, Report
from eab.labs.variants import (
    PROMPT_REUSED,
    agree,
    cache_variants,
    costs_of,
)

CONFIG = BranchingConfig(entropy_threshold=1.5, max_paths=9, max_new_tokens=10, seed=2)
PROMPT = " ".join(f"w{index % 60 + 2}" for index in range(100))


@pytest.fixture(scope="module")
def first_runs(twins) -> list[LabEvent]:
    """The events of one run of each variant, without repeats and without the final event."""
    model, request = twins("qwen2").ours, Request(PROMPT, CONFIG)
    *events, _ = run_variants(model, request, "caches", cache_variants(), repeats=0)
    return events


def test_only_the_last_run_finds_its_prompt_in_the_prefix_cache(first_runs):
    compared = Report().collect(first_runs)
    costs = {cost.variant: cost for cost in costs_of(compared)}
    reused = {name: (cost.tokens_reused, cost.reused_bytes) for name, cost in costs.items()}
    row, found = compared.runs["tree"].started.model.row_bytes, reused.pop(PROMPT_REUSED)
    assert found == (99, 99 * row), "the last token of a prompt is always computed"
    assert set(reused.values()) == {(0, 0)}
    tree, again = costs["tree"], costs[PROMPT_REUSED]
    assert tree.tokens_through_model - again.tokens_through_model == 99
    assert agree(compared)
    rows = {measure: cells for measure, *cells in CACHES_LAB.table(compared)}
    assert rows["prompt tokens reused"] == ["0", "0", "0", "0", "0", "99"]
