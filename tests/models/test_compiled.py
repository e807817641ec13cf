"""Products that are compiled for this processor: exact on integers, and the same in any batch."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from eab.errors import ModelError
from eab.models import compiled, weight_layouts
from eab.models.weight_layouts import TiledLinear, apply_layout, measure_layouts

needs_compiled = pytest.mark.skipif(
    not compiled.available(), reason="no llvmlite, AVX2 or GNU OpenMP"
)


def integers(*shape: int, seed: int) -> Tensor:
    """Whole numbers, so small that their sums are exact in float32."""
    return torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(seed)).float()


@needs_compiled
@given(
    outputs=st.integers(1, 200),
    inputs=st.integers(1, 700),
    rows=st.integers(1, 20),
    bias=st.booleans(),
    threads=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
@torch.inference_mode()
def test_sums_of_whole_numbers_are_exact(outputs, inputs, rows, bias, threads, seed):
    linear = nn.Linear(inputs, outputs, bias=bias)
    linear.weight.copy_(integers(outputs, inputs, seed=seed))
    if bias:
        linear.bias.copy_(integers(outputs, seed=seed + 1))
    x = integers(rows, inputs, seed=seed + 2)
    expected = x.double() @ linear.weight.double().t() + (linear.bias.double() if bias else 0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert torch.equal(TiledLinear(linear)(x).double(), expected)
    finally:
        torch.set_num_threads(before)


@needs_compiled
@pytest.mark.parametrize("shape", [(256, 688), (70, 33), (16, 11008)], ids=str)
@torch.inference_mode()
def test_a_row_has_the_same_bits_in_any_batch(shape):
    layer = TiledLinear(nn.Linear(shape[1], shape[0]))
    x = torch.randn(40, shape[1]) * torch.logspace(-3, 3, 40)[:, None]
    whole = layer(x)
    for rows in (1, 2, 5, 6, 7, 13):
        for start in range(0, 41 - rows, rows):
            assert torch.equal(layer(x[start : start + rows]), whole[start : start + rows])


@needs_compiled
@torch.inference_mode()
def test_rounding_errors_do_not_grow_with_the_number_of_inputs():
    for inputs in (256, 11008):
        linear, x = nn.Linear(inputs, 256), torch.randn(20, inputs)
        exact = nn.functional.linear(x.double(), linear.weight.double(), linear.bias.double())
        ours, plain = (
            (layer(x) - exact).norm() / exact.norm() for layer in (TiledLinear(linear), linear)
        )
        assert ours < 3 * plain


@needs_compiled
@torch.inference_mode()
def test_rows_with_nan_or_infinity_do_not_affect_the_others():
    layer, x = TiledLinear(nn.Linear(300, 70)), torch.randn(9, 300)
    expected = layer(x)
    x[1, 299], x[2, 3] = float("nan"), float("inf")
    found = layer(x)
    others = [0, *range(3, 9)]
    assert torch.equal(found[others], expected[others])
    assert not found[1:3].isfinite().any()


@needs_compiled
@torch.inference_mode()
def test_several_python_threads_at_once():
    layer, x = TiledLinear(nn.Linear(688, 256)), torch.randn(1, 7, 688)
    expected = layer(x)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: layer(x), range(200)):
            assert torch.equal(found, expected)


@needs_compiled
@torch.inference_mode()
def test_inputs_need_not_be_contiguous_or_float32():
    linear = nn.Linear(64, 70)
    layer, x = TiledLinear(linear), torch.randn(64, 2, 3)
    turned = x.permute(1, 2, 0)
    assert torch.equal(layer(turned), layer(turned.contiguous()))
    assert torch.equal(layer(turned.double()), layer(turned))
    assert layer(turned).shape == (2, 3, 70)
    assert layer(turned[:0]).shape == (0, 3, 70)


def test_where_nothing_can_be_compiled_the_layout_is_refused_and_never_measured(monkeypatch):
    monkeypatch.setattr(compiled, "available", lambda: False)
    with pytest.raises(ModelError, match=r"'tiled', which does not work here .* Choose auto"):
        apply_layout(nn.Sequential(nn.Linear(8, 8)), "tiled")
    monkeypatch.setattr(weight_layouts, "MAX_SECONDS", 0.0)
    assert "tiled" not in measure_layouts([nn.Linear(64, 64)])


def test_other_systems_and_processors_are_recognized(monkeypatch):
    cases = [
        ("find_spec", lambda name: None),
        ("openmp_path", lambda: None),
        ("torch.cpu.get_capabilities", lambda: {"architecture": "aarch64"}),
    ]
    for name, value in cases:
        with monkeypatch.context() as patch:
            where = name if "." in name else f"eab.models.compiled.{name}"
            patch.setattr(where, value)
            assert compiled.available.__wrapped__() is False
