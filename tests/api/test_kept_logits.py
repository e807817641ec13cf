"""Logits that a run keeps on request equal those of transformers, for the requested steps only."""

import pytest
import torch
from equality import assert_same_decisions
from transformers import MinPLogitsWarper

from eab import EntropyAdaptiveBranching
from eab.lessons.checks.policy import TableModel, random_table

SETTINGS = {"max_new_tokens": 8, "entropy_threshold": 0.3, "max_paths": 6}


@pytest.mark.parametrize("drafter", ["none", "sibling-lookup"])
def test_kept_logits_are_those_of_the_model_whatever_the_settings(twins, drafter):
    explorer = EntropyAdaptiveBranching(twins("llama").ours, drafter=drafter, **SETTINGS)
    changed = {"temperature": 0.5, "top_k": 3}
    run = explorer.run("w5 w6 w7 w5 w6", keep_logits=range(2, 6), **changed)
    assert {step for _, step in run.logits} == {2, 3, 4, 5}
    assert len(run.logits) > 8
    for (path, step), kept in run.logits.items():
        before = [token.id for token in run.tokens(path) if token.step < step]
        with torch.inference_mode():
            logits = twins("llama").plain(torch.tensor([[*run.started.prompt_tokens, *before]]))
        torch.testing.assert_close(kept, logits.logits[0, -1], atol=1e-9, rtol=0)
    assert_same_decisions(run, explorer.run("w5 w6 w7 w5 w6", **changed))


def test_processors_and_a_probe_do_not_change_kept_logits(twins):
    explorer = EntropyAdaptiveBranching(twins("llama").ours, preset="wide", max_new_tokens=4)
    plain = explorer.run("w5 w6", keep_logits=[0])
    processed = explorer.run("w5 w6", keep_logits=[0], logits_processor=MinPLogitsWarper(0.5))
    assert plain.logits.keys() == processed.logits.keys() == {(0, 0)}
    assert torch.equal(plain.logits[0, 0], processed.logits[0, 0])
    assert plain.logits[0, 0].dtype == torch.float64


def test_steps_may_be_a_range_or_a_tensor_and_go_beyond_the_run():
    model = TableModel(random_table(2, 5), stop_ids=[4])
    explorer = EntropyAdaptiveBranching(model, max_new_tokens=3)
    assert {step for _, step in explorer.run("0", keep_logits=range(10**5)).logits} <= {0, 1, 2}
    assert {step for _, step in explorer.run("0", keep_logits=torch.arange(2)).logits} == {0, 1}
