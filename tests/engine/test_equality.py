"""Whatever the engine does with its cache, every leaf has the probabilities of the plain model; with
logits processors, of transformers' own.
"""

import math
from dataclasses import replace
from itertools import cycle
from typing import get_args

import pytest
import torch
from equality import EXACT, PROMPT, assert_leaves_match, assert_same_decisions, processed
from made_runs import events_of, run_of
from neutral_explorer import neutral_explorer
from policies import FORKING
from transformers import (
    AutoModelForCausalLM,
    LogitsProcessorList,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
)

import eab
from eab import EntropyAdaptiveBranching, Request
from eab.config import BranchingConfig, CacheName
from eab.engine.build import check_processors
from eab.engine.models.sources import EMBEDDED_FOLDER
from eab.engine.request import continue_from
from eab.errors import ConfigError
from eab.lessons.checks.policy import TableModel, random_table
from eab.run import fold
from eab.run.events import Predicted, RowsAllocated, StepTimed
from eab.share.exports import as_python

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
    run = run_of(embedded, prompt, cache=cache, **settings)
    assert len(run.leaves()) > 3
    assert_leaves_match(run, plain_embedded, 2e-4)
    if cache != "tree":
        expected = run_of(embedded, prompt, **settings)
        assert [one.token_ids for one in run.samples] == [one.token_ids for one in expected.samples]


TABLE = TableModel(random_table(2, 9, concentration=2.0), stop_ids=[4])
REPETITION = RepetitionPenaltyLogitsProcessor(1.8)
PROCESSORS = {
    "one": REPETITION,
    "list": [REPETITION, MinPLogitsWarper(0.05)],
    "LogitsProcessorList": LogitsProcessorList(
        [
            NoBadWordsLogitsProcessor([[5], [7, 9]], eos_token_id=1),
            MinPLogitsWarper(0.02),
            REPETITION,
        ]
    ),
}


def assert_distribution_is_that_of_transformers(run, plain, processors, tolerance):
    """Assert that each token's ln p and the entropy of its step are those of transformers."""
    chain, prompt = LogitsProcessorList(processors), list(run.started.prompt_tokens)
    for sample in run.samples:
        ids = torch.tensor([[*prompt, *sample.token_ids]])
        with torch.inference_mode():
            logits = plain(ids).logits[0]
        for step, token in enumerate(sample.token_ids):
            end = len(prompt) + step
            log_probs = chain(ids[:, :end], logits[end - 1 : end].clone()).log_softmax(-1)[0]
            assert sample.log_probs[step] == pytest.approx(float(log_probs[token]), abs=tolerance)
            entropy = float(torch.special.entr(log_probs.exp()).sum())
            assert sample.entropies[step] == pytest.approx(entropy, abs=tolerance)


PENALIZED = {"repetition_penalty": 1.8}


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("given", PROCESSORS.values(), ids=PROCESSORS)
def test_penalties_then_processors_then_filters_give_the_distribution_of_transformers(
    twins, given, family
):
    explorer = neutral_explorer(
        twins(family).ours, max_new_tokens=12, entropy_threshold=0.3, temperature=0.8, top_k=20
    )
    processors = given if isinstance(given, list) else [given]
    run = explorer.run("w5 w6 w7 w5 w6", logits_processor=given, **PENALIZED)
    assert len(run.samples) > 3
    assert run.started.logits_processors == tuple(type(one).__name__ for one in processors)
    filters = [TemperatureLogitsWarper(0.8), TopKLogitsWarper(20)]
    chain = [REPETITION, *processors, *filters]
    assert_distribution_is_that_of_transformers(run, twins(family).plain, chain, 1e-9)


def test_a_run_with_penalties_can_be_resimulated_saved_and_continued(tmp_path):
    model = TableModel(random_table(3, 40, concentration=0.5), stop_ids=[4])
    explorer = neutral_explorer(model, max_new_tokens=5, max_paths=256, **PENALIZED)
    low, high = (explorer.run("0 1 2", entropy_threshold=nats) for nats in (2.3, 2.6))
    assert len(low.samples) > len(high.samples) > 1
    again = low.what_if(threshold=2.6)
    assert_same_decisions(again, high)
    assert again.started.what_if == "exact"
    low.save(tmp_path / "penalized.eab")
    assert eab.load(tmp_path / "penalized.eab").events == low.events
    tokens = high.samples[0].token_ids[:3]
    request = continue_from(model, high.started, tokens, high.started.config)
    [handle] = eab.serve(model, [request])
    assert eab.Run(handle).started.config.repetition_penalty == 1.8


def test_a_run_does_not_depend_on_the_others_in_its_pass(twins):
    model = twins("llama").ours
    explorer = neutral_explorer(model, max_paths=4, max_new_tokens=6)
    alone = explorer.run("w5 w6", logits_processor=REPETITION, preset="balanced")
    other = explorer.run("w7")
    requests = [
        Request("w7", other.started.config),
        Request("w5 w6", alone.started.config, logits_processors=[REPETITION]),
    ]
    found = [eab.Run(handle) for handle in eab.serve(model, requests)]
    assert_same_decisions(found[0], other)
    assert_same_decisions(found[1], alone)


@pytest.mark.parametrize(
    "changes", [{"logits_processor": REPETITION}, PENALIZED], ids=["processor", "penalty"]
)
def test_the_probe_applies_processors_and_penalties(embedded, changes):
    explorer = EntropyAdaptiveBranching(embedded, max_new_tokens=6, preset="balanced")
    before, changed, after = (
        explorer.run("Once upon a time", **given).probe for given in ({}, changes, {})
    )
    assert before == after != changed


def test_the_probe_is_repeated_because_a_processor_may_have_changed(embedded):
    explorer = EntropyAdaptiveBranching(embedded, max_new_tokens=6, preset="balanced")
    processor = RepetitionPenaltyLogitsProcessor(1.2)
    before = explorer.run("Once upon a time", logits_processor=processor).probe
    processor.penalty = 1.8
    assert explorer.run("Once upon a time", logits_processor=processor).probe != before


def test_a_processor_that_writes_in_place_changes_only_its_own_row():
    def only_seven(input_ids, scores):
        assert input_ids.shape[0] == scores.shape[0] == 1
        scores.fill_(-math.inf)
        scores[:, 7] = 0.0
        return scores

    run = neutral_explorer(TABLE, max_new_tokens=3).run("0 1", logits_processor=only_seven)
    assert [sample.token_ids for sample in run.samples] == [(7, 7, 7)]
    assert run.started.logits_processors == ("only_seven",)


def test_a_run_with_processors_names_them_and_cannot_be_resimulated(tmp_path):
    made = neutral_explorer(TABLE, max_new_tokens=4).run("0", logits_processor=REPETITION)
    made.save(tmp_path / "processed.eab")
    run = eab.load(tmp_path / "processed.eab")
    assert run.events == made.events
    words = r"logits processors \(RepetitionPenaltyLogitsProcessor\)"
    with pytest.raises(ConfigError, match=f"the run used {words}, which was given in Python"):
        run.what_if(threshold=2.0)
    assert as_python(run.started).startswith("# The run used logits processors (Repet")
    with pytest.raises(
        ConfigError, match=f"this run used {words}, which can only be given in Python"
    ):
        continue_from(TABLE, run.started, (1,), run.started.config)


def test_processors_are_refused_for_a_model_on_a_server(embedded):
    class OnServer:
        kv_shape = type("Shape", (), {"blocks": object()})()
        card = embedded.card

    request = neutral_explorer(embedded, logits_processor=REPETITION)._asked({})
    with pytest.raises(ConfigError, match="runs on a server"):
        check_processors(OnServer(), request)


@pytest.mark.parametrize("mask", [-1e9, torch.finfo(torch.float32).min])
def test_a_finite_mask_of_all_tokens_leaves_equal_chances(embedded, mask):
    explorer = neutral_explorer(embedded, max_new_tokens=1, policy="greedy")
    run = explorer.run("a", logits_processor=lambda ids, scores: scores * 0 + mask)
    uniform = math.log(embedded.card.vocab_size)
    assert run.samples[0].entropies[0] == pytest.approx(uniform, abs=1e-5)
    assert run.samples[0].log_prob == pytest.approx(-uniform, abs=1e-5)
