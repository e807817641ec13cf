"""Entropy and filters of the processed distribution, and draws from it. A random number depends on its
inputs alone, and serves one purpose.
"""

import itertools
import math
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from equality import processed
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import events_of
from policies import EVERY

from eab.config import MAX_SEED, BranchingConfig
from eab.engine.branching import random_streams
from eab.engine.branching.random_streams import (
    ROOT,
    Purpose,
    child_stream_key,
    pruning_uniform,
    uniform,
)
from eab.engine.branching.sampling import (
    CANDIDATES,
    Distributions,
    Predictions,
    RestDraw,
    block_sums,
    draws,
    largest,
    log_probs_of,
)

PLAIN = BranchingConfig()
LAST = 1 - 2.0**-53
DTYPES = [torch.float32, torch.float64]


def test_entropies_at_both_ends():
    equal = torch.zeros(1, 50_257, dtype=torch.float64)
    assert Predictions(equal, PLAIN).entropies == pytest.approx([math.log(50_257)])
    sure = torch.full((1, 9), -math.inf)
    sure[0, 4] = 3.0
    assert Predictions(sure, PLAIN).entropies == [0.0]


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 3), min_size=30, max_size=30), min_size=1, max_size=4))
def test_equally_likely_tokens_come_in_the_order_of_their_ids_as_with_argmax(levels):
    logits = torch.tensor(levels, dtype=torch.float64)
    found = Predictions(logits, BranchingConfig(top_k=9))
    for row, tokens, probabilities in zip(
        logits, found.top_tokens, found.top_probabilities, strict=True
    ):
        listed = list(zip(probabilities, (-token for token in tokens), strict=True))
        assert listed == sorted(listed, reverse=True)
        assert (row[tokens] == row.sort(descending=True).values[: len(tokens)]).all()
    log_probs = found.log_prob(range(len(levels)), [tokens[1] for tokens in found.top_tokens])
    seconds = [probabilities[1] for probabilities in found.top_probabilities]
    assert log_probs == pytest.approx([math.log(one) for one in seconds])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_logits_are_processed_in_float32(dtype):
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(1)).to(dtype)
    assert Predictions(logits, PLAIN).entropies == Predictions(logits.float(), PLAIN).entropies


@pytest.mark.parametrize(
    "filters",
    [{}, {"temperature": 1.7, "top_k": 12, "top_p": 0.85}, {"top_k": 999, "top_p": 0.01}],
    ids=str,
)
def test_entropies_and_log_probabilities_are_those_of_transformers_after_filtering(filters):
    logits = 3 * torch.randn(6, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    config = BranchingConfig(**filters)
    expected, found = processed(logits, config), Predictions(logits, config)
    entropies = torch.special.entr(expected.exp()).sum(-1)
    assert found.entropies == pytest.approx(entropies.tolist(), abs=1e-12)
    everywhere = zip(*itertools.product(range(6), range(60)), strict=True)
    assert found.log_prob(*everywhere) == pytest.approx(expected.flatten().tolist(), abs=1e-12)


def test_there_are_as_many_top_tokens_as_a_fork_may_need():
    logits = torch.zeros(1, 40)
    assert len(Predictions(logits, PLAIN).top_tokens[0]) == CANDIDATES
    assert len(Predictions(logits, BranchingConfig(branch_factor=13)).top_tokens[0]) == 13
    assert len(Predictions(logits[:, :3], PLAIN).top_tokens[0]) == 3


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [3, 1000, 150_000])
def test_the_lowest_and_highest_draws_reach_the_first_and_last_possible_tokens(dtype, size):
    logits = torch.full((2, size), 0.0, dtype=dtype)
    logits[:, [0, -1]] = -math.inf
    assert Predictions(logits, PLAIN).draw([0, 1], [0.0, LAST]) == [1, size - 2]


def test_a_draw_skips_excluded_tokens_and_leaves_the_distribution_as_it_is():
    probabilities = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]], dtype=torch.float64)
    found = Predictions(probabilities.log(), PLAIN)
    assert found.draw([0, 1], [0.4, 0.4], excluded=[[0, 1], [0, 1]]) == [None, 2]
    assert found.draw([0, 1], [0.4, 0.1]) == [0, 0]
    assert found.log_prob([0, 1], [0, 0]) == pytest.approx([math.log(0.5), math.log(0.2)])
    assert found.draw([], []) == []


RUNS = [
    (PLAIN, 2),
    (BranchingConfig(temperature=0.6), 1),
    (BranchingConfig(temperature=0.6, branch_factor=13), 3),
    (BranchingConfig(top_k=5), 1),
    (BranchingConfig(top_p=0.7, temperature=1.4), 2),
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_runs_with_different_settings_get_the_predictions_and_draws_of_each_alone(dtype):
    counts = [count for _, count in RUNS]
    total = sum(counts)
    logits = 3 * torch.randn(total, 600, generator=torch.Generator().manual_seed(4)).to(dtype)
    uniforms = [(0.37 * index) % 1 for index in range(total)]
    together = Predictions(logits, RUNS)
    rests = [
        RestDraw(index, 1 - one, together.top_tokens[index][:2])
        for index, one in enumerate(uniforms)
    ]
    together.draw_next(uniforms, rests[1::2])
    first = 0
    for (config, count), found in zip(RUNS, together.split(counts), strict=True):
        alone = Predictions(logits[first : first + count], config)
        own = [
            RestDraw(rest.index - first, rest.uniform, rest.excluded)
            for rest in rests[1::2]
            if first <= rest.index < first + count
        ]
        alone.draw_next(uniforms[first : first + count], own)
        assert found.entropies == alone.entropies
        assert (found.drawn, found.rests) == (alone.drawn, alone.rests)
        assert sum(token is not None for token in found.rests) == len(own)
        for index in range(count):
            listed = len(alone.top_tokens[index])
            assert found.top_tokens[index][:listed] == alone.top_tokens[index]
            assert not any(found.top_probabilities[index][listed:])
            asked = ([index], [alone.drawn[index]])
            assert found.log_prob(*asked) == alone.log_prob(*asked)
        first += count


def test_nan_logits_of_one_run_do_not_affect_the_other_runs():
    logits = torch.randn(2, 300, generator=torch.Generator().manual_seed(6))
    logits[0] = math.nan
    both = Predictions(logits, [(PLAIN, 1), (PLAIN, 1)])
    both.draw_next([0.5, 0.5], [])
    alone = Predictions(logits[1:], PLAIN)
    alone.draw_next([0.5], [])
    assert both.drawn == [None, *alone.drawn]
    assert math.isnan(both.entropies[0])
    assert both.entropies[1:] == alone.entropies


@pytest.mark.parametrize("offset", [0.0, -100.0, 1e4, -1e9])
@pytest.mark.parametrize("temperature", [0.01, 0.5, 1.0])
def test_a_common_offset_of_the_logits_rounds_nothing_away(offset, temperature):
    logits = torch.randn(3, 500, generator=torch.Generator().manual_seed(1)) * temperature + offset
    exact = (
        (logits.double() - logits.double().amax(dim=-1, keepdim=True)) / temperature
    ).log_softmax(-1)
    config = replace(PLAIN, temperature=temperature)
    found = Predictions(logits, config)
    entropies = -(exact.exp() * exact).nansum(dim=-1)
    assert found.entropies == pytest.approx(entropies.tolist(), abs=1e-5)
    rows = [row for row in range(3) for _ in range(500)]
    log_probs = found.log_prob(rows, [*range(500)] * 3)
    assert log_probs == pytest.approx(exact.flatten().tolist(), abs=1e-5)
    largest = logits.topk(4).values
    torch.testing.assert_close(found.best_logits(4, temperature), largest, rtol=1e-6, atol=1e-5)


LEVELS = st.sampled_from([-math.inf, -60.0, -2.0, 0.0, 0.5, 5.0])


def distributions(scores: torch.Tensor) -> Distributions:
    probs, best = torch.softmax(scores, dim=-1), scores.amax(dim=-1)
    log_total = (scores - best[:, None]).logsumexp(dim=-1)
    return Distributions(scores, probs, block_sums(probs), best, log_total)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    size=st.sampled_from([2, 255, 256, 257, 1000, 4096]),
    levels=st.lists(LEVELS, min_size=1, max_size=6),
    wide=st.booleans(),
    uniforms=st.lists(
        st.one_of(st.sampled_from([0.0, 0.5, LAST]), st.floats(0, LAST)), min_size=1, max_size=5
    ),
    excluded=st.integers(0, 4),
)
def test_a_draw_inverts_the_distribution_without_the_hidden_tokens(
    seed, size, levels, wide, uniforms, excluded
):
    generator = torch.Generator().manual_seed(seed)
    rows = len(uniforms)
    scores = torch.randn(rows, size, generator=generator)
    chosen = torch.randint(len(levels), (rows, size), generator=generator)
    scores = scores + torch.tensor(levels)[chosen]
    scores[:, 0].clamp_(min=0.0)
    of = distributions(scores.double() if wide else scores)
    before = of.probs.clone()
    indices = [*reversed(range(rows))]
    best = of.probs[indices].topk(min(excluded, size)).indices.tolist()
    hidden = [(draw, token) for draw, tokens in enumerate(best) for token in tokens]
    drawn = draws(of, indices, uniforms, hidden)
    assert torch.equal(of.probs, before)
    for draw, (index, number) in enumerate(zip(indices, uniforms, strict=True)):
        probs = of.probs[index].double()
        probs[[token for own, token in hidden if own == draw]] = 0.0
        token, inside, total = drawn[draw]
        assert total == pytest.approx(probs.sum().item(), rel=1e-5, abs=1e-30)
        assert (token is None) == (not total > 0)
        if token is not None:
            reached = probs[:token].sum().item() + inside * probs[token].item()
            assert probs[token] > 0
            assert reached == pytest.approx(number * total, abs=1e-5 * total)
            [log_prob] = log_probs_of(of, np.array([index]), np.array([token]))
            assert log_prob == pytest.approx(
                of.scores[index].log_softmax(0)[token].item(), abs=1e-4
            )


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    size=st.sampled_from([1, 300, 4096, 5000, 33_000]),
    count=st.integers(1, 60),
    low_precision=st.booleans(),
)
def test_the_largest_numbers_are_those_of_topk(seed, size, count, low_precision):
    rows = torch.randn(3, size, generator=torch.Generator().manual_seed(seed))
    rows = rows.bfloat16().float() if low_precision else rows  # with equal ones
    rows[1, size // 2 :] = -math.inf
    count = min(count, size)
    values, columns = largest(rows, count)
    assert torch.equal(values, rows.topk(count).values)
    assert torch.equal(values, rows.gather(1, columns))
    assert all(len({*own}) == count for own in columns.tolist())


ANY_SEED = st.integers(0, MAX_SEED)
STREAM_KEYS = st.integers(0, 2**64 - 1)
STEPS = st.integers(0, 5000)
PURPOSES = st.sampled_from(Purpose)

FROZEN_UNIFORMS = [0.6299085342998937, 0.19765265011863864, 0.8836289693691156, 0.8908864717254646]
FROZEN_PRUNING = 0.6131746863976323
FROZEN_KEYS = [259418745062592498, 15316269418215960375]


@given(
    seed=ANY_SEED, stream_key=STREAM_KEYS, step=STEPS, purpose=PURPOSES, number=st.integers(0, 16)
)
def test_a_draw_is_at_least_zero_and_below_one_and_repeats(seed, stream_key, step, purpose, number):
    drawn = uniform(seed, stream_key, step, purpose, number)
    assert 0 <= drawn < 1
    assert drawn == uniform(seed, stream_key, step, purpose, number)
    assert (drawn * 2**53).is_integer()


@given(
    seed=ANY_SEED, stream_key=st.integers(0, 2**64 - 2), step=STEPS, token=st.integers(0, 300_000)
)
def test_a_child_gets_a_stream_key_of_its_own(seed, stream_key, step, token):
    key = child_stream_key(stream_key, step, token)
    assert key not in (stream_key, ROOT, 2**64 - 1)
    assert key == child_stream_key(stream_key, step, token)
    assert key != child_stream_key(stream_key, step, token + 1)
    assert key != child_stream_key(stream_key, step + 1, token)


@pytest.mark.parametrize("varied", ["seed", "stream_key", "step", "number"])
def test_draws_are_uniform_along_each_input(varied):
    where = {"seed": 11, "stream_key": 22, "step": 33, "purpose": Purpose.TOKEN, "number": 0}
    draws = [uniform(**where | {varied: value}) for value in range(20_000)]
    counts = Counter(int(draw * 50) for draw in draws)
    assert chi_square(counts, 50) < 100  # expected: 49 +- 10; the bound is 5 sigma
    pairs = Counter((int(one * 7), int(two * 7)) for one, two in itertools.pairwise(draws))
    assert chi_square(pairs, 49) < 98, "consecutive draws are independent"


def chi_square(counts: Counter, cells: int) -> float:
    expected = counts.total() / cells
    seen = sum((count - expected) ** 2 / expected for count in counts.values())
    return seen + (cells - len(counts)) * expected


def test_all_draws_differ_and_never_change_so_that_old_seeds_repeat():
    places = itertools.product(range(6), range(6), range(6), Purpose, range(6))
    numbers = {uniform(*place) for place in places}
    pruning = {pruning_uniform(*place) for place in itertools.product(range(6), range(6))}
    assert len(numbers | pruning) == len(Purpose) * 6**4 + 36
    assert [
        uniform(0, ROOT, 0, Purpose.TOKEN),
        uniform(1, ROOT, 2, Purpose.TOKEN, 3),
        uniform(MAX_SEED, 2**64 - 1, 4095, Purpose.TOKEN, 1),
        uniform(1, ROOT, 2, Purpose.PERTURBATION, 3),
    ] == FROZEN_UNIFORMS
    assert pruning_uniform(7, 3) == FROZEN_PRUNING
    assert [child_stream_key(ROOT, 0, 0), child_stream_key(123, 45, 678)] == FROZEN_KEYS


Words = tuple[int, ...]  # hash inputs: seed, stream key, step and index; or those of a stream key


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[Words, Counter[str]]:
    """All random numbers that a run asks for, and how often each line of the code asks for them."""
    found: defaultdict[Words, Counter[str]] = defaultdict(Counter)
    compute = random_streams._hash

    def hash_and_note(*words: int) -> int:
        asking = sys._getframe(2)  # the caller of `uniform` or of a function like it
        code = asking.f_code
        found[words][f"{Path(code.co_filename).name}:{asking.f_lineno} {code.co_name}"] += 1
        return compute(*words)

    monkeypatch.setattr(random_streams, "_hash", hash_and_note)
    return found


def is_next_token(words: Words) -> bool:
    """Whether it draws a path's next token, which a draft model and verification also ask for."""
    return words[3] == Purpose.TOKEN


@pytest.mark.parametrize("drafter", ["none", "model", "prompt-lookup", "sibling-lookup"])
@pytest.mark.parametrize("policy", EVERY)
def test_a_random_number_serves_one_purpose(twins, asked, policy, drafter):
    """A purpose is a line of the code. A number that draws no next token is asked for once per run,
    or again where a draft token was rejected.
    """
    settings = {"max_new_tokens": 16, "entropy_threshold": 2.5, "top_k": 20, "seed": 3}
    settings |= {"policy": policy, "drafter": drafter}
    for max_paths in (2, 7):
        asked.clear()
        model, draft = twins("llama").ours, twins("llama", 1).ours
        assert events_of(model, "w5 w9 w3 w5 w9", draft=draft, max_paths=max_paths, **settings)
        assert any(is_next_token(words) for words in asked)
        assert_one_purpose_each(asked, repeats=drafter != "none")


def assert_one_purpose_each(asked: dict[Words, Counter[str]], repeats: bool) -> None:
    shared = {words: lines for words, lines in asked.items() if len(lines) > 1}
    assert not shared
    again = {
        words: lines
        for words, lines in asked.items()
        if max(lines.values()) > 1 and not is_next_token(words) and words[3] != Purpose.STREAM_KEY
    }
    assert repeats or not again
