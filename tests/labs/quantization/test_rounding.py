"""Rounding one matrix: by hand, compared with the engine's layers, and properties of all grids."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from eab.errors import ConfigError
from eab.labs.quantization.rounding import (
    BITS,
    CONSTANT_BYTES,
    MATRIX,
    ROW,
    RoundingGrid,
    Share,
    round_to_grid,
)
from eab.models.quantized.int4 import quantize_groups
from eab.models.quantized.int8 import quantize_rows
from eab.models.quantized.nf4 import NF4DoubleQuantLinear, NF4Linear

SHARES: tuple[Share, ...] = (MATRIX, ROW, 128, 32)


def normal(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def test_absmax_by_hand():
    weight = np.array([[0.3, -0.9, 0.74], [0.0, 4.0, 6.0]], np.float32)
    found = round_to_grid(weight, RoundingGrid("absmax", 3, ROW))  # -3 .. 3 times 0.3, and times 2
    assert found.rounded == pytest.approx(np.array([[0.3, -0.9, 0.6], [0, 4, 6]]))
    assert found.levels(1).tolist() == [-6, -4, -2, 0, 2, 4, 6]
    whole = round_to_grid(weight, RoundingGrid("absmax", 3, MATRIX))
    assert whole.rounded.tolist() == [[0, 0, 0], [0, 4, 6]]


def test_bytes_include_scales_and_the_savings_of_double_quantization():
    weight = normal(64, 256)
    assert round_to_grid(weight, RoundingGrid("absmax", 8, ROW)).bytes_per_weight == 1 + 4 / 256
    assert round_to_grid(weight, RoundingGrid("affine", 4, 32)).bytes_per_weight == 0.5 + 4 / 32
    assert round_to_grid(weight, RoundingGrid("nf4", share=64)).bytes_per_weight == 0.5 + 4 / 64
    double = round_to_grid(weight, RoundingGrid("nf4", share=64, double=True))
    assert double.scale_bytes == 256 + CONSTANT_BYTES * (1 + 1)  # one block of scales and the mean


@pytest.mark.parametrize("group", [32, 64])
def test_affine_groups_of_four_bits_equal_those_of_the_layer(group):
    weight = normal(48, 128)
    integers, scale, zero = quantize_groups(torch.from_numpy(weight), group)
    steps = integers.unflatten(1, (-1, group)).float() - 8
    layer = (zero.float()[..., None] + steps * scale.float()[..., None]).flatten(1)
    assert round_to_grid(weight, RoundingGrid("affine", 4, group)).rounded == pytest.approx(
        layer.numpy()
    )


def test_absmax_rows_of_eight_bits_equal_those_of_the_layer():
    weight = normal(48, 100)
    integers, scale = quantize_rows(torch.from_numpy(weight))
    found = round_to_grid(weight, RoundingGrid("absmax", 8, ROW))
    assert found.rounded == pytest.approx((integers * scale).numpy())


@pytest.mark.parametrize("double", [False, True])
def test_nf4_blocks_equal_those_of_the_layer(double):
    weight = normal(48, 256)
    linear = torch.nn.Linear(256, 48, bias=False)
    linear.weight = torch.nn.Parameter(torch.from_numpy(weight))
    kind = NF4DoubleQuantLinear if double else NF4Linear
    layer = kind(linear).dequantized().float().numpy()  # products in bfloat16
    found = round_to_grid(weight, RoundingGrid("nf4", share=64, double=double)).rounded
    assert found == pytest.approx(layer, rel=2**-6, abs=1e-6)


MATRICES = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 5), st.integers(1, 70)),
    elements=st.floats(-100, 100, width=32),
)


@given(
    MATRICES, st.sampled_from(["absmax", "affine"]), st.sampled_from(BITS), st.sampled_from(SHARES)
)
def test_no_weight_moves_by_more_than_half_a_step(weight, method, bits, share):
    found = round_to_grid(weight, RoundingGrid(method, bits, share))
    size = {MATRIX: weight.size, ROW: weight.shape[1]}.get(share, share)
    groups = -(-weight.shape[1] // size) * len(weight) if share != MATRIX else 1
    assert found.rounded.shape == weight.shape
    assert len(found.scale) == groups
    # bfloat16 rounds the scale and the zero of an affine grid by up to one part in 256 each.
    reach = np.abs(weight).max() * (0.02 if method == "affine" else 1e-5)
    assert np.abs(found.rounded - weight).max() <= found.scale.max() / 2 + reach + 1e-6


def test_more_bits_and_smaller_groups_have_smaller_errors():
    weight = normal(64, 256)
    weight[3, 5] = 40  # an outlier stretches only the grid of its neighbours
    errors = [round_to_grid(weight, RoundingGrid("absmax", bits, ROW)).error for bits in BITS]
    assert errors == sorted(errors, reverse=True)
    by_share = [round_to_grid(weight, RoundingGrid("absmax", 4, share)).error for share in SHARES]
    assert by_share == sorted(by_share, reverse=True)
    found = round_to_grid(weight, RoundingGrid("absmax", 4, ROW))
    assert found.outliers >= 1
    assert found.group_at(1) == 3


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "log"}, "must be one of"),
        ({"method": "absmax", "bits": 9}, "2 to 8"),
        ({"method": "nf4", "bits": 8}, "4 to 4"),
        ({"method": "absmax", "share": 1}, "at least 2"),
        ({"method": "absmax", "share": "column"}, "matrix, row"),
        ({"method": "affine", "double": True}, "only nf4 supports it"),
    ],
)
def test_an_invalid_grid_is_refused_with_an_explanation(settings, words):
    with pytest.raises(ConfigError, match=words):
        RoundingGrid(**settings)


def test_affine_by_hand():
    weight = np.array([[1.0, 1.5, 2.6, 4.0]], np.float32)  # minimum and maximum are unchanged
    found = round_to_grid(weight, RoundingGrid("affine", 2, MATRIX))
    assert found.levels(0).tolist() == [1, 2, 3, 4]
    assert found.rounded[0, [0, 2, 3]].tolist() == [1, 3, 4]
