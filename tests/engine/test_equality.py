"""Whatever the engine does with its cache, every leaf has the probabilities of the plain model."""

from dataclasses import replace
from itertools import cycle
from typing import get_args

import pytest
import torch
from equality import EXACT, PROMPT, assert_leaves_match, assert_same_decisions, decisions, processed
from made_runs import events_of, run_of
from policies import FORKING
from transformers import AutoModelForCausalLM

from eab.config import BranchingConfig, CacheName
from eab.engine.models.sources import EMBEDDED_FOLDER
from eab.run import fold
from eab.run.events import Predicted, RowsAllocated, StepTimed

# One for each kind of positions and attention; tests/engine/models/test_own_cache.py has the others
FAMILIES = ["llama", "qwen2", "gpt2", "gpt_neox", "phi"]
OTHER_CACHES = [name for name in get_args(CacheName) if name != "tree"]
BASE = BranchingConfig(max_new_tokens=12, entropy_threshold=1.5)
SHORT_PROMPT, LONG_PROMPT = (
    " ".join(f"w{(5 * index) % 60 + 2}" for index in range(tokens)) for tokens in (20, 45)
)

SETTINGS = {
    "fork everywhere": {"entropy_threshold": 0.0, "max_paths": 12},
    "fork sometimes": {"entropy_threshold": 2.5, "max_paths": 40, "branch_factor": 2, "r": 1},
    "light paths stay": {"entropy_threshold": 1.0, "min_fork_weight": 0.05, "r": 3},
    "cold": {"temperature": 0.7, "top_k": 9, "entropy_threshold": 1.0, "branch_factor": 4},
    "nucleus": {"temperature": 1.3, "top_p": 0.8, "max_paths": 6, "r": 64},
    "both filters": {"top_k": 20, "top_p": 0.9, "entropy_threshold": 2.0, "max_paths": 1},
    "all filters": {"top_k": 40, "top_p": 0.9, "min_p": 0.1, "entropy_threshold": 1.0},
    "original": {"policy": "original", "entropy_threshold": 2.8, "max_paths": 7, "top_k": 30},
    "full": {"policy": "original", "entropy_threshold": 0.5, "max_paths": 4, "top_p": 0.9, "r": 2},
}


@pytest.mark.parametrize(
    ("settings", "family", "seed"),
    [*zip([*SETTINGS, *SETTINGS], cycle(FAMILIES), cycle([1, 2]), strict=False)],
)
def test_every_leaf_equals_a_full_forward_pass_without_a_cache(twins, family, settings, seed):
    changes = {"max_new_tokens": 14, "seed": seed} | SETTINGS[settings]
    run = run_of(twins(family).ours, PROMPT, BASE, **changes)
    assert len(run.leaves()) > (run.started.config.max_paths > 1)
    assert_leaves_match(run, twins(family).plain, EXACT)


def test_the_shown_candidates_are_the_most_likely_tokens_of_the_plain_model(twins):
    pair, config = twins("llama"), BranchingConfig(max_new_tokens=4, temperature=0.8)
    events = events_of(pair.ours, PROMPT, config)
    first = next(event for event in events if isinstance(event, Predicted))
    with torch.inference_mode():
        prompt = torch.tensor([list(pair.ours.encode(PROMPT, config))])
        probabilities = processed(pair.plain(prompt).logits[0, -1:], config).exp()[0]
    best = probabilities.topk(8)
    candidates = first.predictions[0].candidates
    assert [each.token for each in candidates] == best.indices.tolist()
    assert [each.probability for each in candidates] == [round(p, 6) for p in best.values.tolist()]


@pytest.mark.parametrize("policy", FORKING)
def test_the_growth_step_r_changes_no_decision(twins, policy):
    settings = {"max_paths": 10, "branch_factor": 3, "policy": policy}
    expected, *others = (
        decisions(events_of(twins("qwen2").ours, PROMPT, BASE, r=r, **settings))
        for r in (1, 3, 200)
    )
    assert all(found == expected for found in others)


@pytest.mark.parametrize(
    ("policy", "family"),
    [*zip([*FORKING, *FORKING], cycle(["llama", "gpt2", "mistral"]), strict=False)],
)
def test_every_cache_gives_the_same_run(twins, family, policy):
    model, config = twins(family).ours, replace(BASE, max_paths=7, policy=policy, seed=3)
    expected = run_of(model, PROMPT, config)
    assert_leaves_match(expected, twins(family).plain, EXACT)
    looks_at_threshold = policy in ("fair", "original")
    assert sum(path.status == "forked" for path in expected.paths) > 3 * looks_at_threshold
    if policy != "arithmetic":  # which never drops a path
        assert any(path.status == "pruned" or path.limited_steps for path in expected.paths)
    for cache in OTHER_CACHES:
        found = events_of(model, PROMPT, config, cache=cache)
        assert_same_decisions(fold(found), expected)
        assert not any(isinstance(event, RowsAllocated) for event in found)


@pytest.mark.parametrize(
    ("cache", "prompt", "through"),
    [
        ("tree", LONG_PROMPT, [7, 7, 7, 7, 7, 7, 3]),
        ("concat-cow", SHORT_PROMPT, [7, 7, 6]),
        ("deep-copy", SHORT_PROMPT, [7, 7, 6]),
        ("recompute", SHORT_PROMPT, [7, 14, 20]),
    ],
)
def test_a_prompt_in_chunks_works_with_every_cache(twins, monkeypatch, cache, prompt, through):
    monkeypatch.setattr("eab.engine.generation.PREFILL_CHUNK", 7)
    settings = {"max_new_tokens": 8, "max_paths": 6, "cache": cache}
    events = events_of(twins("qwen2").ours, prompt, BASE, **settings)
    run = fold(events)
    assert_leaves_match(run, twins("qwen2").plain, EXACT)
    timed = [event.tokens for event in events if isinstance(event, StepTimed) and event.step == 0]
    assert timed == through
    assert run.steps[0].timing.tokens == sum(through)


@pytest.fixture(scope="module")
def plain_embedded() -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(EMBEDDED_FOLDER, dtype=torch.float32).eval()


@pytest.mark.parametrize(
    ("policy", "cache"),
    [*((policy, "tree") for policy in FORKING), *(("fair", cache) for cache in OTHER_CACHES)],
)
def test_the_embedded_model_in_float32_equals_its_plain_forward_pass(
    embedded, plain_embedded, policy, cache
):
    prompt = "Once upon a time there was a little"
    settings = {"max_new_tokens": 24, "entropy_threshold": 0.8, "max_paths": 12, "policy": policy}
    for seed in (0, 1) if cache == "tree" else (0,):
        run = run_of(embedded, prompt, cache=cache, seed=seed, **settings)
        assert len(run.leaves()) > 3
        assert_leaves_match(run, plain_embedded, 2e-4)
    if cache != "tree":
        expected = run_of(embedded, prompt, **settings)
        assert [one.token_ids for one in run.samples] == [one.token_ids for one in expected.samples]
