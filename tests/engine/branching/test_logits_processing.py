"""Repetition penalties give the scores of transformers, and weights are unbiased under them."""

import math
from collections.abc import Sequence

import pytest
import torch
from equality import processed as plain
from estimates import FUNCTIONALS, assert_unbiased
from hypothesis import given
from hypothesis import strategies as st
from made_runs import run_of
from transformers import LogitsProcessorList, RepetitionPenaltyLogitsProcessor

from eab.config import BranchingConfig
from eab.engine.branching.logits_processing import penalties, processed
from eab.lessons.checks.policy import TableModel, random_table

STOP = 5


def of_transformers(config: BranchingConfig) -> LogitsProcessorList:
    """The processors of transformers, in the order of `generate`."""
    chain = LogitsProcessorList()
    if config.repetition_penalty != 1:
        chain.append(RepetitionPenaltyLogitsProcessor(config.repetition_penalty))
    return chain


@given(
    texts=st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=40), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
    penalty=st.sampled_from([0.01, 0.5, 1.0, 1.2, 10.0]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
)
def test_the_scores_equal_those_of_transformers(texts, seed, penalty, dtype):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(texts), 9, generator=generator).mul(4).to(dtype)
    logits[torch.rand(len(texts), 9, generator=generator) < 0.1] = -math.inf
    before = logits.clone()
    config = BranchingConfig(repetition_penalty=penalty)
    found = processed(penalties(config), logits, texts)
    assert torch.equal(logits, before), "the logits of the model are its own"
    assert found.dtype == (dtype if dtype == torch.float64 else torch.float32)
    for text, row, scores in zip(texts, logits.to(found.dtype), found, strict=True):
        assert torch.equal(of_transformers(config)(torch.tensor([text]), row[None])[0], scores)


def test_penalties_that_are_off_do_nothing():
    assert penalties(BranchingConfig()) == ()


def exact_texts(
    model: TableModel, config: BranchingConfig, prompt: Sequence[int]
) -> list[tuple[tuple[int, ...], float]]:
    """All texts and their probabilities, by enumeration."""
    made, live = [], [((), 1.0)]
    for _ in range(config.max_new_tokens):
        grown = []
        for text, mass in live:
            ids = torch.tensor([[*prompt, *text]])
            logits = torch.from_numpy(model.table).log()[ids[0, -1:]]
            odds = plain(of_transformers(config)(ids, logits), config).exp()[0].tolist()
            grown += [((*text, token), mass * p) for token, p in enumerate(odds) if p > 0]
        made += [(text, mass) for text, mass in grown if text[-1] == STOP]
        live = [(text, mass) for text, mass in grown if text[-1] != STOP]
    return made + live


@pytest.mark.parametrize(
    ("policy", "max_paths"), [("fair", 3), ("fair", 20), ("arithmetic", 3), ("independent", 3)]
)
def test_weights_are_unbiased_when_penalties_depend_on_the_path(policy, max_paths):
    model = TableModel(random_table(10, 6, 0.7), [STOP])
    config = BranchingConfig(
        policy=policy,
        max_paths=max_paths,
        max_new_tokens=4,
        entropy_threshold=0.8,
        temperature=0.9,
        repetition_penalty=1.6,
    )
    texts = exact_texts(model, config, [3, 0])
    assert math.fsum(mass for _, mass in texts) == pytest.approx(1.0)
    expected = [math.fsum(mass * f(text) for text, mass in texts) for f in FUNCTIONALS.values()]
    estimates, odds = [], dict(texts)
    for seed in range(150):
        run = run_of(model, "3 0", config, seed=seed)
        samples = [(one.token_ids, one.weight) for one in run.samples]
        estimates.append(
            [math.fsum(weight * f(text) for text, weight in samples) for f in FUNCTIONALS.values()]
        )
        for one in run.samples:
            assert one.log_prob == pytest.approx(math.log(odds[one.token_ids]), abs=1e-9)
    assert_unbiased(estimates, expected)
