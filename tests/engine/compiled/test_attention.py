"""Attention that is compiled for this processor equals attention with explicit scores. What compiled
products do to rows before and after equals PyTorch's operators.
"""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from processor import needs_compiled, numbers, threads
from row_lists import lists_of
from torch import Tensor
from torch.nn import functional

from eab.engine.caches.rows import ListedRows
from eab.engine.caches.shape import ORDINARY, KVShape, LayerAttention
from eab.engine.models.quantized.integers import Aten, int4_products, quantize_groups

SIZES = (16, 32, 64, 128, 256)
CPU = torch.device("cpu")

pytestmark = needs_compiled


def some_rows(tokens: int, rows: int, seed: int) -> np.ndarray:
    """Which rows each token sees: at least one."""
    random = np.random.default_rng(seed)
    seen = random.random((tokens, rows)) < random.random((tokens, 1))
    seen[np.arange(tokens), random.integers(0, rows, tokens)] = True
    return seen


def listed(seen: np.ndarray) -> ListedRows:
    return ListedRows(lists_of(seen))


def exact(
    query: Tensor, keys: Tensor, values: Tensor, seen: np.ndarray, scale: float
) -> tuple[Tensor, Tensor]:
    """The output, (H, T, D), and the log-sum-exp, (H, T), in float64."""
    group = len(query) // len(keys)
    keys, values = (rows.double().repeat_interleave(group, 0) for rows in (keys, values))
    scores = query.double() @ keys.transpose(1, 2) * scale
    scores = scores.masked_fill(~torch.from_numpy(seen), float("-inf"))
    return scores.softmax(-1) @ values, scores.logsumexp(-1)


@given(
    size=st.sampled_from(SIZES),
    groups=st.integers(1, 3),
    group=st.sampled_from((1, 2, 3, 7)),
    tokens=st.integers(1, 9),
    rows=st.integers(1, 300),
    loudness=st.sampled_from((0.0, 0.3, 1.0, 30.0)),
    count=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
@torch.inference_mode()
def test_it_equals_exact_attention(size, groups, group, tokens, rows, loudness, count, seed):
    query = numbers(tokens, groups * group, size, seed=seed, scale=loudness).transpose(0, 1)
    keys, values = (numbers(groups, rows, size, seed=seed + index) for index in (1, 2))
    seen = some_rows(tokens, rows, seed)
    with threads(count):
        out, lse = listed(seen).attend_with_lse(query, keys, values, size**-0.5)
    expected, expected_lse = exact(query, keys, values, seen, size**-0.5)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=2e-5 * max(1, loudness))
    torch.testing.assert_close(lse.double(), expected_lse, rtol=2e-6, atol=2e-6 * max(1, loudness))


@torch.inference_mode()
def test_a_token_has_the_same_bits_in_any_batch():
    query, keys, values = (
        numbers(6, 20, 64, seed=1),
        *(numbers(2, 500, 64, seed=2 + i) for i in (0, 1)),
    )
    seen = some_rows(20, 500, seed=4)
    whole = listed(seen).attend(query, keys, values, 0.125, ORDINARY)
    for tokens in (slice(0, 1), slice(3, 10), slice(19, 20)):
        part = listed(seen[tokens]).attend(query[:, tokens], keys, values, 0.125, ORDINARY)
        assert torch.equal(part, whole[tokens])


@torch.inference_mode()
def test_rows_that_a_token_does_not_see_do_not_affect_it():
    query, keys, values = (numbers(2, rows, 16, seed=rows) for rows in (3, 200, 200))
    seen = np.zeros((3, 200), dtype=np.bool_)
    seen[:2, 3:150], seen[2] = True, True
    expected = listed(seen).attend(query, keys, values, 0.25, ORDINARY)
    keys[:, 170], values[:, 180] = float("nan"), float("inf")
    found = listed(seen).attend(query, keys, values, 0.25, ORDINARY)
    assert torch.equal(found[:2], expected[:2])
    assert found[2].isnan().all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@torch.inference_mode()
def test_scores_that_are_not_finite_give_nan_as_in_pytorch(bad):
    query, keys, values = (numbers(1, rows, 16, seed=rows) for rows in (1, 40, 40))
    query[..., 0], keys[0, 33] = 1.0, 0.0
    keys[0, 33, 0] = bad
    out = listed(np.ones((1, 40), np.bool_)).attend(query, keys, values, 1.0, ORDINARY)
    plain = torch.nn.functional.scaled_dot_product_attention(query, keys, values, scale=1.0)
    assert plain.isnan().all()
    assert out.isnan().all()


@torch.inference_mode()
def test_rows_with_scores_of_minus_infinity_have_no_weight():
    query, keys, values = (numbers(1, rows, 16, seed=rows) for rows in (1, 300, 300))
    query[..., 0], keys[0, 20:280, 0] = 1e10, -1e30
    out = listed(np.ones((1, 300), np.bool_)).attend(query, keys, values, 1.0, ORDINARY)
    others = [*range(20), *range(280, 300)]
    expected, _ = exact(query, keys[:, others], values[:, others], np.ones((1, 40), bool), 1.0)
    torch.testing.assert_close(out[0].double(), expected[:, 0], rtol=1e-4, atol=1e-4)
    keys[0, :, 0] = -1e30
    out = listed(np.ones((1, 300), np.bool_)).attend(query, keys, values, 1.0, ORDINARY)
    assert out.isnan().all()


@torch.inference_mode()
def test_one_score_far_above_the_others_takes_all_the_weight():
    keys, values = torch.zeros(1, 300, 16), numbers(1, 300, 16, seed=0)
    for row in (0, 5, 127, 128, 299):
        keys.zero_()[0, row] = 1.0
        out = listed(np.ones((1, 300), np.bool_)).attend(
            torch.full((1, 1, 16), 100.0), keys, values, 1.0, ORDINARY
        )
        assert torch.equal(out[0, 0], values[0, row])


@torch.inference_mode()
def test_what_it_cannot_read_is_refused():
    query, keys, values = (numbers(2, rows, 16, seed=rows) for rows in (3, 20, 20))
    rows = listed(np.ones((3, 20), np.bool_))
    for tensors in (
        (query.double(), keys, values),
        (query, keys.half(), values),
        (query, keys, values.transpose(0, 1).contiguous().transpose(0, 1)),
        (query.to("meta"), keys, values),
    ):
        with pytest.raises(TypeError, match="compiled code"):
            rows.attend(*tensors, 1.0, ORDINARY)


def test_it_is_used_where_heads_consist_of_vectors(monkeypatch):
    def is_used(size, dtype=torch.float32, layer=ORDINARY):
        return KVShape(1, 2, size, dtype, CPU, attention=(layer,)).mask_kind(0).is_compiled

    assert [is_used(size) for size in (64, 48, 20, 512)] == [True, True, False, False]
    assert not any(is_used(64, dtype) for dtype in (torch.bfloat16, torch.float64))
    for layer in (LayerAttention(soft_cap=30.0), LayerAttention(sinks=(0.5,))):
        assert not is_used(64, layer=layer)
    monkeypatch.setattr("eab.engine.compiled.can_compile", lambda: False)
    assert not is_used(64)


WIDTHS = st.sampled_from((16, 64, 208, 576))
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def multiplied(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, before: Any = None, **more: Any
) -> Tensor:
    """x times a float32 weight."""
    from eab.engine.compiled.products import Product
    from eab.engine.compiled.weights import FLOAT32

    return Product(weight.shape[1], FLOAT32.part(*FLOAT32.pack(weight, bias)), before)(x, **more)


@given(
    size=WIDTHS,
    tokens=st.integers(1, 9),
    loud=st.sampled_from((1e-4, 1.0, 1e4)),
    seed=st.integers(0, 99),
)
@torch.inference_mode()
def test_rows_are_normalized_as_by_rms_norm(size, tokens, loud, seed):
    from eab.engine.compiled.products import Norm

    x, weight = numbers(tokens, size, seed=seed, scale=loud), numbers(size, seed=seed + 1)
    found = multiplied(x, torch.eye(size), before=Norm(weight, 1e-5))[:, :size]
    torch.testing.assert_close(found, functional.rms_norm(x, (size,), weight, 1e-5), **CLOSE)


@given(
    size=WIDTHS,
    tokens=st.integers(1, 9),
    loud=st.sampled_from((0.1, 3.0, 60.0)),
    seed=st.integers(0, 99),
)
@torch.inference_mode()
def test_rows_are_gated_by_silu(size, tokens, loud, seed):
    from eab.engine.compiled.products import Gate

    x = numbers(tokens, 2 * size + 16, seed=seed, scale=loud)
    found = multiplied(x, torch.eye(size), before=Gate(size + 16))[:, :size]
    expected = functional.silu(x[:, :size]) * x[:, size + 16 :]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5 * loud)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 0.0, -200.0, 200.0])
@torch.inference_mode()
def test_extreme_gates_are_as_in_pytorch(value):
    from eab.engine.compiled.products import Gate

    x = torch.ones(1, 32)
    x[0, 0], x[0, 16] = value, 2.0
    found = multiplied(x, torch.eye(16), before=Gate(16))[:, 0]
    torch.testing.assert_close(found, functional.silu(x[:, 0]) * 2, equal_nan=True, **CLOSE)


@given(tokens=st.integers(1, 20), inputs=st.sampled_from((32, 256, 700)), seed=st.integers(0, 99))
@torch.inference_mode()
def test_the_residual_is_added(tokens, inputs, seed):
    x, weight = numbers(tokens, inputs, seed=seed), numbers(192, inputs, seed=seed + 1)
    residual, expected = numbers(tokens, 192, seed=seed + 2), x @ weight.t()
    found = multiplied(x, weight, residual=residual)
    torch.testing.assert_close(found, residual + expected, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_what_would_be_read_or_written_out_of_bounds_is_refused():
    from eab.engine.compiled.products import Gate, Norm

    x, weight = torch.ones(2, 64), torch.ones(128, 64)
    for more in (
        {"before": Norm(torch.ones(32), 1e-5)},
        {"before": Gate(64)},
        {"before": Gate(0)},
        {"residual": torch.ones(2, 64)},
        {"residual": torch.ones(1, 128)},
        {"residual": torch.ones(2, 128), "bias": torch.ones(128)},
    ):
        with pytest.raises(ValueError, match="do not fit together"):
            multiplied(x, weight, **more)
    with pytest.raises(ValueError, match="do not fit together"):
        multiplied(torch.ones(2, 20), torch.ones(64, 20), before=Norm(torch.ones(20), 1e-5))


@pytest.mark.skipif(
    int4_products() is Aten, reason="the product of four-bit weights is not compiled"
)
@given(
    outputs=st.integers(1, 9),
    groups=st.integers(1, 5),
    group=st.sampled_from((32, 64, 128)),
    rows=st.integers(1, 40),
    loud=st.sampled_from((1e-3, 1.0, 1e3)),
    seed=st.integers(0, 999),
)
@torch.inference_mode()
def test_four_bit_products_have_the_bits_of_aten(outputs, groups, group, rows, loud, seed):
    weight = numbers(16 * outputs, groups * group, seed=seed)
    x = numbers(rows, groups * group, seed=seed + 1, scale=loud)
    stored = quantize_groups(weight, group)
    ours, plain = (way.product(x, *way.pack(*stored)) for way in (int4_products(), Aten))
    assert torch.equal(ours[:, : 16 * outputs], plain.float())
