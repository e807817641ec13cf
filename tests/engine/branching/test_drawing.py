"""Draws invert the distribution, and the largest numbers are those of topk."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eab.engine.branching.drawing import (
    Distributions,
    block_sums,
    draws,
    largest,
    log_probs_of,
)

LAST = 1 - 2.0**-53
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
        st.one_of(st.sampled_from([0.0, LAST]), st.floats(0, LAST)), min_size=1, max_size=5
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
    hidden = [(0, token) for token in of.probs[0].topk(min(excluded, size)).indices.tolist()]
    indices = [*reversed(range(rows))]
    drawn = draws(of, indices, uniforms, hidden)
    assert torch.equal(of.probs, before)
    for draw, (index, uniform) in enumerate(zip(indices, uniforms, strict=True)):
        probs = of.probs[index].double()
        probs[[token for own, token in hidden if own == draw]] = 0.0
        token, inside, total = drawn[draw]
        assert total == pytest.approx(probs.sum().item(), rel=1e-5, abs=1e-30)
        assert (token is None) == (not total > 0)
        if token is not None:
            reached = probs[:token].sum().item() + inside * probs[token].item()
            assert probs[token] > 0
            assert reached == pytest.approx(uniform * total, abs=1e-5 * total)
            [log_prob] = log_probs_of(of, np.array([index]), np.array([token]))
            assert log_prob == pytest.approx(
                of.scores[index].log_softmax(0)[token].item(), abs=1e-4
            )


def test_a_row_of_nan_does_not_affect_the_others():
    scores = torch.randn(2, 300, generator=torch.Generator().manual_seed(1))
    alone = draws(distributions(scores[1:]), [0], [0.4], [])
    scores[0] = math.nan
    both = draws(distributions(scores), [0, 1], [0.4, 0.4], [(0, 5)])
    assert not both[0][2] > 0
    assert tuple(both[1]) == tuple(alone[0])


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
