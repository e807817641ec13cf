"""Logits that a run keeps on request equal those of transformers, for the requested steps only."""

import pytest
import torch
from equality import assert_same_decisions
from table_model import TableModel, random_table
from transformers import MinPLogitsWarper

from eab import EntropyAdaptiveBranching
from eab.errors import ConfigError

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


def test_invalid_or_too_many_steps_are_refused_before_the_run():
    model = TableModel(random_table(2, 5), stop_ids=[4])
    explorer = EntropyAdaptiveBranching(model, max_new_tokens=3)
    for steps in ("02", 3, [-1], [0.5], None):
        with pytest.raises(ConfigError, match=r"keep_logits is .*; give steps from 0 on"):
            explorer.run("0", keep_logits=steps)
    assert {step for _, step in explorer.run("0", keep_logits=range(10**5)).logits} <= {0, 1, 2}
    assert {step for _, step in explorer.run("0", keep_logits=torch.arange(2)).logits} == {0, 1}
    with pytest.raises(ConfigError, match=r"names no step of the run; .* they are 0 to 2"):
        explorer.run("0", keep_logits=[3])
    with pytest.raises(ConfigError, match="more than 1,000,000 steps"):
        explorer.run("0", keep_logits=range(10**12))
    with pytest.raises(ConfigError, match="it is an argument of run"):
        explorer.generate("0", keep_logits=[0])
    embedded = EntropyAdaptiveBranching(max_paths=256, max_new_tokens=400)
    with pytest.raises(ConfigError, match="keep_logits names 400 steps of up to 256 paths"):
        embedded.run("The cat", keep_logits=range(400))
