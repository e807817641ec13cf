"""The variant with a tree cache whose prompt is in the prefix cache."""

import pytest

from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.labs.caches import CACHES_LAB, reuse_sentence
from eab.labs.measure_variants import run_variants
from eab.labs.measurement import LabEvent, Report, Row
from eab.labs.variants import (
    PROMPT_REUSED,
    REPEATS,
    agree,
    cache_variants,
    costs_of,
)
from eab.timing import NO_DIFFERENCE

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
    assert reuse_sentence(compared).endswith("99 tokens of it are not computed again.")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.02, ": the first token takes 20.0 ms, 0.5× as long."),
        (0.04, f"; the first token takes as long ({NO_DIFFERENCE})."),
    ],
)
def test_the_savings_of_reuse_are_given_only_beyond_the_spread(first_runs, seconds, words):
    compared = Report().collect(first_runs)
    for number in range(REPEATS):
        for name in cache_variants():
            row = {"variant": name, "repeat": number, "seconds": 0.1, "step": 0.01}
            first = seconds if name == PROMPT_REUSED else 0.04
            compared.apply(Row("repeats", row | {"first": first}))
    assert reuse_sentence(compared).endswith(words)


def test_there_is_no_sentence_before_there_are_runs():
    assert reuse_sentence(Report()) == ""
