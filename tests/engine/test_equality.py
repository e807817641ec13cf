"""Whatever the engine does with its cache, every leaf has the probabilities of the plain model."""

from dataclasses import replace
from typing import get_args

import pytest
import torch
from equality import (
    EXACT,
    MEASUREMENTS,
    PROMPT,
    assert_leaves_match,
    assert_same_decisions,
    processed,
)
from policies import FORKING
from transformers import AutoModelForCausalLM

from eab.config import BranchingConfig, CacheName
from eab.engine.loop import generate
from eab.engine.request import Request
from eab.events import Event, Forked, Predicted, Pruned, RowsAllocated, StepTimed
from eab.models.sources import EMBEDDED_FOLDER
from eab.run import fold

FAMILIES = ["llama", "qwen2", "gpt2", "gpt_neox", "opt", "mistral", "qwen3", "phi"]
OTHER_CACHES = [name for name in get_args(CacheName) if name != "tree"]

SETTINGS = {
    "fork everywhere": {"entropy_threshold": 0.0, "max_paths": 12},
    "fork sometimes": {"entropy_threshold": 2.5, "max_paths": 40, "branch_factor": 2, "r": 1},
    "light paths stay": {"entropy_threshold": 1.0, "min_fork_weight": 0.05, "r": 3},
    "cold, few tokens": {
        "temperature": 0.7,
        "top_k": 9,
        "entropy_threshold": 1.0,
        "branch_factor": 4,
    },
    "nucleus": {
        "temperature": 1.3,
        "top_p": 0.8,
        "entropy_threshold": 1.5,
        "max_paths": 6,
        "r": 64,
    },
    "both filters": {"top_k": 20, "top_p": 0.9, "entropy_threshold": 2.0, "max_paths": 1},
    "original": {"policy": "original", "entropy_threshold": 2.8, "max_paths": 7, "top_k": 30},
    "original, full": {
        "policy": "original",
        "entropy_threshold": 0.5,
        "max_paths": 4,
        "top_p": 0.9,
        "r": 2,
    },
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("family", FAMILIES[:4])
def test_every_leaf_equals_a_full_forward_pass_without_a_cache(twins, family, settings):
    for seed in (1, 2):
        config = BranchingConfig(max_new_tokens=14, seed=seed, **settings)
        run = fold(generate(twins(family).ours, Request(PROMPT, config)))
        assert len(run.leaves()) > (config.max_paths > 1)
        assert_leaves_match(run, twins(family).plain, EXACT)


@pytest.mark.parametrize("family", FAMILIES[4:])
def test_further_families_equal_a_full_forward_pass_without_a_cache(twins, family):
    config = BranchingConfig(max_new_tokens=16, entropy_threshold=1.5, max_paths=9, r=4)
    run = fold(generate(twins(family).ours, Request(PROMPT, config)))
    assert_leaves_match(run, twins(family).plain, EXACT)


def test_a_run_that_forks_and_prunes_much_is_among_those_compared(twins):
    config = BranchingConfig(max_new_tokens=14, seed=1, **SETTINGS["fork everywhere"])
    events = list(generate(twins("qwen2").ours, Request(PROMPT, config)))
    assert sum(isinstance(event, Forked) for event in events) > 10
    assert sum(isinstance(event, Pruned) for event in events) > 5


def test_the_candidates_shown_are_the_most_likely_tokens_of_the_plain_model(twins):
    pair, config = twins("llama"), BranchingConfig(max_new_tokens=4, temperature=0.8)
    events = list(generate(pair.ours, Request(PROMPT, config)))
    first = next(event for event in events if isinstance(event, Predicted))
    with torch.inference_mode():
        prompt = torch.tensor([list(pair.ours.encode(PROMPT, config))])
        probabilities = processed(pair.plain(prompt).logits[0, -1:], config).exp()[0]
    best = probabilities.topk(8)
    assert [candidate.token for candidate in first.candidates] == best.indices.tolist()
    assert [candidate.probability for candidate in first.candidates] == [
        round(p, 6) for p in best.values.tolist()
    ]


@pytest.mark.parametrize("policy", FORKING)
def test_the_allocation_step_r_changes_no_decision(twins, policy):
    def decisions(r: int) -> list[object]:
        config = BranchingConfig(
            max_new_tokens=12,
            entropy_threshold=1.5,
            max_paths=10,
            branch_factor=3,
            policy=policy,
            r=r,
        )
        events = list(generate(twins("qwen2").ours, Request(PROMPT, config)))
        return [event for event in events[1:] if not isinstance(event, MEASUREMENTS)]

    expected = decisions(1)
    assert all(decisions(r) == expected for r in (2, 3, 5, 12, 200))


@pytest.mark.parametrize("policy", FORKING)
@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2", "mistral"])
def test_every_cache_gives_the_same_run(twins, family, policy):
    def events(cache: str) -> list[Event]:
        config = BranchingConfig(
            max_new_tokens=12,
            entropy_threshold=1.5,
            max_paths=7,
            policy=policy,
            cache=cache,
            seed=3,
        )
        return list(generate(twins(family).ours, Request(PROMPT, config)))

    expected = fold(events("tree"))
    looks_at_threshold = policy in ("fair", "original")
    assert sum(path.status == "forked" for path in expected.paths) > 3 * looks_at_threshold
    if policy != "arithmetic":  # it never drops a path
        assert any(path.status == "pruned" or path.limited_steps for path in expected.paths)
    for cache in OTHER_CACHES:
        found = events(cache)
        assert_same_decisions(fold(found), expected)
        assert_leaves_match(fold(found), twins(family).plain, EXACT)
        assert not any(isinstance(event, RowsAllocated) for event in found)


@pytest.mark.parametrize("cache", OTHER_CACHES)
def test_a_prompt_in_chunks_goes_through_every_cache(twins, monkeypatch, cache):
    monkeypatch.setattr("eab.engine.generation.PREFILL_CHUNK", 7)
    prompt = " ".join(f"w{(5 * index) % 60 + 2}" for index in range(20))
    config = BranchingConfig(max_new_tokens=5, entropy_threshold=1.5, max_paths=6, cache=cache)
    events = list(generate(twins("qwen2").ours, Request(prompt, config)))
    assert_leaves_match(fold(events), twins("qwen2").plain, EXACT)
    through = [event.tokens for event in events if isinstance(event, StepTimed)][:3]
    assert through == ([7, 14, 20] if cache == "recompute" else [7, 7, 6])


@pytest.mark.parametrize("cache", OTHER_CACHES)
def test_the_embedded_model_gives_the_same_texts_under_every_cache(embedded, cache):
    plain = AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER, dtype=torch.float32).eval()
    config = BranchingConfig(max_new_tokens=20, entropy_threshold=0.8, max_paths=12, cache=cache)
    run = fold(generate(embedded, Request("Once upon a time there was a little", config)))
    expected = fold(
        generate(
            embedded, Request("Once upon a time there was a little", replace(config, cache="tree"))
        )
    )
    assert [sample.token_ids for sample in run.samples()] == [
        sample.token_ids for sample in expected.samples()
    ]
    assert_leaves_match(run, plain, 2e-4)


def test_a_long_prompt_goes_through_in_chunks_and_equals_one_pass(twins, monkeypatch):
    monkeypatch.setattr("eab.engine.generation.PREFILL_CHUNK", 7)
    prompt = " ".join(f"w{(5 * index) % 60 + 2}" for index in range(45))
    config = BranchingConfig(max_new_tokens=8, entropy_threshold=1.5, max_paths=6)
    events = list(generate(twins("qwen2").ours, Request(prompt, config)))
    run = fold(events)
    assert_leaves_match(run, twins("qwen2").plain, EXACT)
    timed = [event.tokens for event in events if isinstance(event, StepTimed) and event.step == 0]
    assert timed == [7, 7, 7, 7, 7, 7, 3]
    assert run.steps[0].timing is not None
    assert run.steps[0].timing.tokens == 45


@pytest.mark.parametrize("policy", FORKING)
def test_the_embedded_model_in_float32_equals_its_plain_forward_pass(embedded, policy):
    plain = AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER, dtype=torch.float32).eval()
    for seed in (0, 1):
        config = BranchingConfig(
            max_new_tokens=24, entropy_threshold=0.8, max_paths=12, seed=seed, policy=policy
        )
        run = fold(generate(embedded, Request("Once upon a time there was a little", config)))
        assert len(run.leaves()) > 3
        assert_leaves_match(run, plain, 2e-4)
