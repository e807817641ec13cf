"""Quantized layers compute their plain formula, and each row independently of the others."""

import os
import subprocess
import sys
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT
from processor import HAS_BFLOAT16, needs_bfloat16, numbers, threads
from torch import Tensor, nn

from eab.engine.models.quantized.integers import (
    Int4Linear,
    Int8Linear,
    Int8WeightOnlyLinear,
    OneDnn,
    int8_products,
    largest_input,
    quantize_groups,
    quantize_rows,
)
from eab.engine.models.quantized.layer import (
    NF4,
    BFloat16Linear,
    NF4DoubleQuantLinear,
    NF4Linear,
    QuantizedLinear,
    quantize_blocks,
)

LAYERS = [
    pytest.param(BFloat16Linear, marks=needs_bfloat16),
    Int8Linear,
    Int8WeightOnlyLinear,
    Int4Linear,
    NF4Linear,
    NF4DoubleQuantLinear,
]
EVERYWHERE = LAYERS[1:]
# Including those of the embedded model
SHAPES = [(256, 256), (688, 256), (256, 688), (48, 32), (130, 70), (1, 64), (17, 33), (64, 4864)]
BFLOAT16_STEP = 2**-8


def made(outputs: int, inputs: int, seed: int = 0, bias: bool = False) -> nn.Linear:
    """A linear layer with random weights about as large as those of models."""
    torch.manual_seed(seed)
    linear = nn.Linear(inputs, outputs, bias=bias)
    with torch.no_grad():
        linear.weight.normal_(std=0.05)
    return linear


def formula(layer: QuantizedLinear, linear: nn.Linear, x: Tensor) -> Tensor:
    """What the layer should compute from the rounded weights, in float64."""
    weight = linear.weight.detach()
    if isinstance(layer, Int8Linear):
        rows, row_scale = quantize_rows(x, largest_input())
        integers, scale = quantize_rows(weight)
        sums = rows.double() @ integers.double().t()
        return sums * row_scale.double() * scale.double().t()
    if isinstance(layer, Int8WeightOnlyLinear):
        integers, scale = quantize_rows(weight)
        rounded = integers.double() * scale.to(torch.bfloat16).double()
    elif isinstance(layer, Int4Linear):
        filled = nn.functional.pad(weight, (0, -weight.shape[1] % 32))
        integers, scale, zero = quantize_groups(filled)
        groups = integers.unflatten(1, (-1, 32)).double()
        rounded = ((groups - 8) * scale.double()[..., None] + zero.double()[..., None]).flatten(1)
        rounded = rounded[:, : weight.shape[1]]
    elif isinstance(layer, NF4Linear):
        rounded = layer.dequantized().double()
    else:
        rounded = weight.to(torch.bfloat16).double()
    return x.to(torch.bfloat16).double() @ rounded.t()


@pytest.mark.parametrize("kind", LAYERS)
@torch.inference_mode()
def test_a_layer_computes_its_plain_formula(kind):
    shapes = [shape for shape in SHAPES if kind.fits(made(*shape))]
    assert len(shapes) > 3
    fits = {Int8WeightOnlyLinear: (17, 32), Int4Linear: (48, 33), NF4Linear: (688, 256)}
    fits_not = {Int8WeightOnlyLinear: (32, 40), Int4Linear: (40, 32), NF4Linear: (3, 32)}
    assert kind not in fits or kind.fits(made(*fits[kind]))
    assert kind not in fits_not or not kind.fits(made(*fits_not[kind]))
    # Integer sums are exact; the other products are rounded to bfloat16.
    step = 1e-6 if kind is Int8Linear else BFLOAT16_STEP
    for shape, bias in product(shapes, (False, True)):
        linear = made(*shape, bias=bias)
        layer = kind(linear)
        for rows in (1, 7, 40):
            x = numbers(rows, shape[1], seed=1)
            expected = formula(layer, linear, x) + (linear.bias if bias else 0)
            size = x.abs().sum(1, keepdim=True) * linear.weight.abs().max()
            assert ((layer(x) - expected).abs() <= step * size + 1e-6).all(), (shape, bias, rows)


@given(
    kind=st.sampled_from([BFloat16Linear, *EVERYWHERE] if HAS_BFLOAT16 else EVERYWHERE),
    outputs=st.integers(1, 12).map(lambda count: 16 * count),
    inputs=st.integers(1, 20).map(lambda count: 16 * count),
    beside=st.integers(1, 70),
    louder=st.sampled_from([0.0, 1.0, 30.0]),
    seed=st.integers(0, 1000),
)
@torch.inference_mode()
def test_the_result_of_a_row_does_not_depend_on_the_other_rows(
    kind, outputs, inputs, beside, louder, seed
):
    linear = made(outputs, inputs, seed)
    if not kind.fits(linear):
        return
    layer, row = kind(linear), numbers(1, inputs, seed=seed)
    alone = layer(row)
    for place in (0, beside):
        others = louder * numbers(beside, inputs, seed=seed + 1)
        together = layer(torch.cat([others[:place], row, others[place:]]))
        assert torch.equal(together[place], alone[0])


LARGE = [(4864, 896), (64, 11008)]


@pytest.mark.parametrize(
    "shape",
    [(688, 256), (256, 688), *(pytest.param(one, marks=pytest.mark.slow) for one in LARGE)],
    ids=str,
)
@pytest.mark.parametrize("kind", LAYERS)
@torch.inference_mode()
def test_a_row_has_the_same_result_alone_and_in_a_batch_at_the_shapes_of_models(kind, shape):
    layer = kind(made(*shape))
    x = numbers(64, shape[1], seed=1) * torch.logspace(-2, 2, 64)[:, None]
    whole = layer(x)
    for rows in (1, 5, 16, 33):
        for start in range(0, 65 - rows, rows):
            assert torch.equal(layer(x[start : start + rows]), whole[start : start + rows])


def test_rows_with_nan_or_infinity_do_not_affect_the_others():
    layer, x = Int8Linear(made(32, 64)), numbers(4, 64, seed=1)
    expected = layer(x)
    x[1, 5], x[2, 3] = float("nan"), float("inf")
    found = layer(x)
    assert torch.equal(found[[0, 3]], expected[[0, 3]])
    assert not found[[1, 2]].isfinite().any()


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40))
def test_eight_bit_rounding_is_off_by_half_a_step_at_most(values):
    x = torch.tensor([values])
    integers, scale = quantize_rows(x)
    assert ((integers * scale - x).abs() <= scale * 0.5001).all()
    integers, scale = quantize_rows(torch.tensor([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0]]))
    assert integers.tolist() == [[64, -127, 32], [0, 0, 0]]
    assert scale[0].item() == pytest.approx(2 / 127)


def loud_rows(rows: int, inputs: int, seed: int) -> Tensor:
    """Rows of very different magnitudes, one of them zero, and one with NaN and infinity."""
    x = numbers(rows, inputs, seed=seed) * torch.logspace(-40, 30, rows)[:, None]
    x[1::5] = 0
    x[2::7, :1], x[2::7, -1:] = float("inf"), float("nan")
    return x


needs_own_products = pytest.mark.skipif(
    int8_products() is OneDnn, reason="no AVX-512 VNNI, or oneDNN has a unit for matrices"
)


@needs_own_products
@given(
    outputs=st.integers(1, 200),
    inputs=st.integers(1, 300),
    rows=st.integers(1, 20),
    count=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
@torch.inference_mode()
def test_our_eight_bit_products_are_those_of_onednn(outputs, inputs, rows, count, seed):
    integers, scale = quantize_rows(numbers(outputs, inputs, seed=seed))
    x = loud_rows(rows, inputs, seed)
    with threads(count):
        ours, other = (
            kernel.product(x, *kernel.pack(integers, scale[:, 0].contiguous()))[:, :outputs]
            for kernel in (int8_products(), OneDnn)
        )
    assert torch.equal(ours.nan_to_num(7), other.nan_to_num(7))
    assert torch.equal(ours.isnan(), other.isnan())


@needs_own_products
def test_our_eight_bit_products_at_the_largest_sums():
    """All terms have the same sign, and the sum needs 31 bits."""
    inputs = 130_000
    weight = torch.full((1, inputs), 127, dtype=torch.int8)
    for sign in (1.0, -1.0):
        x = torch.full((1, inputs), sign)
        out = int8_products().product(x, *int8_products().pack(weight, torch.ones(1)))
        assert out[0, 0].item() == pytest.approx(sign * 127 * inputs, rel=1e-6)


@given(st.integers(0, 1000), st.floats(1e-3, 10.0), st.sampled_from([32, 64, 128]))
def test_four_bit_error_is_half_a_step_and_the_rounding_of_scale_and_zero(seed, size, group):
    weight = size * numbers(3, 128, seed=seed)
    integers, scale, zero = (
        one.float().unflatten(1, (128 // group, -1)) for one in quantize_groups(weight, group)
    )
    found = (integers - 8) * scale + zero
    error = (found.flatten(1) - weight).abs().unflatten(1, (-1, group))
    # The ends of a group also move by the rounding of zero, and of the scale times at most 8.
    slack = BFLOAT16_STEP * (8 * scale + zero.abs())
    assert (error <= 0.5 * scale + slack).all()
    integers, scale, zero = quantize_groups(torch.linspace(-1, 14, 16).repeat(2)[None])
    assert integers[0].tolist() == [*range(16)] * 2
    assert (scale.item(), zero.item()) == (1.0, 7.0)


def test_nf4_picks_the_nearest_of_its_values():
    block = torch.tensor([2.0, -2.0, 0.0, 2 * NF4[3] + 0.01, *[0.1] * 60])
    codes, scale = quantize_blocks(block[None])
    assert scale.tolist() == [2.0]
    assert [codes[0].item() % 16, codes[0].item() // 16] == [15, 0]
    assert [codes[1].item() % 16, codes[1].item() // 16] == [7, 3]


@given(st.integers(0, 1000))
def test_no_other_nf4_value_is_nearer(seed):
    linear = made(32, 64, seed)
    values, (_, scale) = torch.tensor(NF4), quantize_blocks(linear.weight)
    shares = linear.weight.detach().view(-1, 64) / scale[:, None]
    nearest = (shares[..., None] - values).abs().amin(-1)
    found = NF4Linear(linear).dequantized().float().view(-1, 64) / scale[:, None]
    assert ((found - shares).abs() <= nearest + 2 * BFLOAT16_STEP).all()


def test_double_quantization_changes_a_scale_by_half_a_step_at_most():
    linear = made(256, 688)
    once, twice = NF4Linear(linear), NF4DoubleQuantLinear(linear)
    step = twice.scale_steps.max().item()
    assert (twice._scale() - once._scale()).abs().max().item() <= 0.51 * step
    bytes_once, bytes_twice = (
        sum(tensor.nbytes for tensor in layer.buffers()) / linear.weight.numel()
        for layer in (once, twice)
    )
    assert bytes_once == pytest.approx(0.5625, abs=0.01)
    assert bytes_twice == pytest.approx(0.516, abs=0.01)


@pytest.mark.parametrize("kind", LAYERS)
@torch.inference_mode()
def test_a_weight_stored_as_its_transpose_is_read_correctly(kind):
    linear, x = made(64, 96), numbers(3, 96, seed=1)
    expected = kind(linear)(x)
    linear.weight.data = linear.weight.data.t().contiguous().t()
    assert torch.equal(kind(linear)(x), expected)


@pytest.mark.parametrize("kind", LAYERS)
@torch.inference_mode()
def test_the_output_has_the_dtype_of_the_input(kind):
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        layer = kind(made(32, 64).to(dtype))
        x = numbers(6, 64, seed=1).to(dtype).view(1, 2, 3, 64)
        assert (layer(x).dtype, layer(x).shape) == (dtype, (1, 2, 3, 32))


@pytest.mark.slow
@pytest.mark.skipif(
    not torch.cpu.get_capabilities().get("avx512_vnni", False), reason="no AVX-512 VNNI"
)
def test_onednn_uses_the_integer_units_of_the_processor():
    """It falls back to a slow reference product where it has no kernel."""
    program = (
        "import torch; from eab.engine.models.quantized.integers import OneDnn;"
        "weight = OneDnn.pack(torch.ones(688, 256, dtype=torch.int8), torch.ones(688));"
        "OneDnn.product(torch.randn(2, 256), *weight)"
    )
    told = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"ONEDNN_VERBOSE": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    products = [line for line in told.splitlines() if ",exec," in line and ",matmul," in line]
    # Another, small product tests whether this processor's sums saturate.
    [product] = [line for line in products if "2x256:256x688" in line]
    assert "ref" not in product.split(",matmul,")[1].split(",")[0]


@torch.inference_mode()
def test_the_largest_numbers_do_not_saturate():
    """255 x 127 twice exceeds 16 bits, in which processors without VNNI add."""
    linear = made(32, 704)
    linear.weight.fill_(1.0)
    torch.testing.assert_close(Int8Linear(linear)(torch.ones(3, 704)), torch.full((3, 32), 704.0))
