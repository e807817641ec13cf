"""What compiled products do to rows before and after equals PyTorch's operators."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from processor import needs_compiled
from torch import Tensor
from torch.nn import functional

from eab.engine.models.quantized.integers import Aten, int4_products, quantize_groups

pytestmark = needs_compiled
SIZES = st.sampled_from((16, 64, 208, 576))
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def numbers(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def multiplied(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, before: Any = None, **more: Any
) -> Tensor:
    """x times a float32 weight."""
    from eab.engine.compiled.products import Product
    from eab.engine.compiled.weights import FLOAT32

    return Product(weight.shape[1], FLOAT32.part(*FLOAT32.pack(weight, bias)), before)(x, **more)


@given(
    size=SIZES,
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
    size=SIZES,
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
