"""Logits processors: for every path, the processed distribution is that of transformers."""

import math

import pytest
import torch
from equality import assert_same_decisions
from neutral_explorer import neutral_explorer
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
)

import eab
from eab import EntropyAdaptiveBranching, Request
from eab.engine.build import check_processors
from eab.engine.request import continue_from
from eab.errors import ConfigError
from eab.lessons.checks.policy import TableModel, random_table
from eab.share.exports import as_python

MODEL = TableModel(random_table(2, 9, concentration=2.0), stop_ids=[4])
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


@pytest.mark.parametrize("changes", [{"logits_processor": REPETITION}, PENALIZED], ids=str)
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

    run = neutral_explorer(MODEL, max_new_tokens=3).run("0 1", logits_processor=only_seven)
    assert [sample.token_ids for sample in run.samples] == [(7, 7, 7)]
    assert run.started.logits_processors == ("only_seven",)


def test_a_run_with_processors_names_them_and_cannot_be_resimulated(tmp_path):
    made = neutral_explorer(MODEL, max_new_tokens=4).run("0", logits_processor=REPETITION)
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
        continue_from(MODEL, run.started, (1,), run.started.config)


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
