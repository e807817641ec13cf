"""The filters keep exactly the tokens that transformers keeps, which sorts the whole vocabulary."""

import math
from collections.abc import Sequence

import pytest
import torch
from equality import filtered
from equality import processed as plain
from estimates import FUNCTIONALS, assert_unbiased
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import run_of
from transformers import LogitsProcessorList, RepetitionPenaltyLogitsProcessor

from eab.config import BranchingConfig
from eab.engine.branching import filters
from eab.engine.branching.filters import penalties, processed
from eab.lessons.checks.policy import TableModel, random_table

DTYPES = [torch.float32, torch.float64]


def assert_as_sorted(logits: torch.Tensor, config: BranchingConfig) -> None:
    before = logits.clone()
    assert torch.equal(filters.filtered(logits, config), filtered(logits, config))
    assert torch.equal(logits, before)


@st.composite
def batches(draw: st.DrawFn) -> torch.Tensor:
    """Logits like a model's; flat or equal ones; rounded to bfloat16; with impossible tokens."""
    size = draw(st.sampled_from([1, 2, 7, 40, 300, 8_192, 20_011, 33_000]))
    rows = draw(st.integers(1, 3))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    logits = torch.randn(rows, size, generator=random, dtype=torch.float64)
    logits *= draw(st.sampled_from([0.0, 1e-6, 0.01, 0.5, 2.0, 5.0, 30.0]))
    if draw(st.booleans()):  # a few likely tokens
        some = torch.randint(size, (rows, 40), generator=random)
        logits.scatter_add_(1, some, 12 * torch.rand(rows, 40, generator=random).double())
    if draw(st.booleans()):
        share = draw(st.sampled_from([0.3, 0.99]))
        logits[torch.rand(rows, size, generator=random) < share] = -math.inf
        logits[:, draw(st.integers(0, size - 1))] = 1.0
    if draw(st.booleans()):
        logits = logits.bfloat16()
    return logits.to(draw(st.sampled_from(DTYPES)))


@settings(max_examples=350)
@given(
    logits=batches(),
    top_k=st.sampled_from([0, 0, 1, 5, 50, 1000]),
    top_p=st.one_of(st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.999, 1.0]), st.floats(0.01, 1.0)),
    min_p=st.one_of(st.sampled_from([0.0, 0.0, 1e-9, 0.05, 0.5, 1.0]), st.floats(0.0, 1.0)),
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
)
def test_filters_keep_the_tokens_that_sorting_keeps(logits, **given):
    assert_as_sorted(logits, BranchingConfig(**given))


@pytest.mark.parametrize("scale", [0.0, 0.01, 1.5, 6.0])
@pytest.mark.parametrize("low_precision", [False, True])
def test_filters_agree_with_sorting_in_a_vocabulary_of_real_size(scale, low_precision):
    logits = scale * torch.randn(3, 151_936, generator=torch.Generator().manual_seed(4))
    if low_precision:
        logits = logits.bfloat16().float()
    for settings_ in ({"top_k": 50}, {"top_p": 0.95}, {"top_k": 2000, "top_p": 0.6}):
        assert_as_sorted(logits, BranchingConfig(**settings_))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_boundary_that_rounding_could_move_is_the_one_that_sorting_finds(dtype):
    """Probabilities whose sum is exactly top-p, whatever the order of addition."""
    halves = torch.arange(1, 40_001, dtype=dtype).clamp(max=30) * -math.log(2)
    for top_p in (0.5, 0.75, 1 - 2**-10):
        for order in range(4):
            mixed = torch.randperm(len(halves), generator=torch.Generator().manual_seed(order))
            assert_as_sorted(halves[mixed][None], BranchingConfig(top_p=top_p))


def test_nan_scores_stay_nan():
    logits = torch.zeros(1, 20_000)
    logits[0, 7] = math.nan
    for settings_ in ({"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1}):
        assert filters.filtered(logits, BranchingConfig(**settings_)).isnan().any()


def test_confident_logits_are_filtered_without_sorting(monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("sorted")

    logits = torch.randn(4, 50_257, generator=torch.Generator().manual_seed(1))
    logits[:, 1000:1020] += 12
    monkeypatch.setattr(filters, "_top_p_of_sorted", refuse)
    monkeypatch.setattr(filters, "_sorted_with_places", refuse)
    filters.filtered(logits, BranchingConfig(top_k=20, top_p=0.9))


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
    assert (penalties(config) == ()) == (penalty == 1.0)
    found = processed(penalties(config), logits, texts)
    assert torch.equal(logits, before), "the logits of the model are its own"
    assert found.dtype == (dtype if dtype == torch.float64 else torch.float32)
    for text, row, scores in zip(texts, logits.to(found.dtype), found, strict=True):
        assert torch.equal(of_transformers(config)(torch.tensor([text]), row[None])[0], scores)


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
