"""Products that are compiled for this processor: exact on integers, and the same in any batch. What runs
on processors with AVX2 and without AVX-512, and where nothing is compiled.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT
from processor import needs_compiled, threads
from torch import Tensor, nn

from eab.engine import compiled
from eab.engine.compiled import VARIABLE
from eab.engine.models.quantized.integers import Int8Linear, OneDnn, int8_products
from eab.engine.models.weights import TiledLinear, apply_layout
from eab.errors import ModelError


def integers(*shape: int, seed: int) -> Tensor:
    """Whole numbers, so small that their sums are exact in float32."""
    return torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(seed)).float()


@needs_compiled
@given(
    outputs=st.integers(1, 200),
    inputs=st.integers(1, 700),
    rows=st.integers(1, 20),
    bias=st.booleans(),
    count=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
@torch.inference_mode()
def test_sums_of_whole_numbers_are_exact(outputs, inputs, rows, bias, count, seed):
    linear = nn.Linear(inputs, outputs, bias=bias)
    linear.weight.copy_(integers(outputs, inputs, seed=seed))
    if bias:
        linear.bias.copy_(integers(outputs, seed=seed + 1))
    x = integers(rows, inputs, seed=seed + 2)
    expected = x.double() @ linear.weight.double().t() + (linear.bias.double() if bias else 0)
    with threads(count):
        assert torch.equal(TiledLinear(linear)(x).double(), expected)


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
def test_inputs_need_not_be_contiguous():
    layer, x = TiledLinear(nn.Linear(64, 70)), torch.randn(64, 2, 3)
    turned = x.permute(1, 2, 0)
    assert torch.equal(layer(turned), layer(turned.contiguous()))
    assert layer(turned).shape == (2, 3, 70)
    assert layer(turned[:0]).shape == (0, 3, 70)


@needs_compiled
def test_what_compiled_code_cannot_read_is_refused():
    layer, x = TiledLinear(nn.Linear(64, 70)), torch.randn(2, 64)
    unreadable = [
        (layer, x.double()),
        (layer, x.to("meta")),
        (layer, torch._neg_view(x)),
        (layer, x.clone().requires_grad_()),
        (TiledLinear(nn.Linear(64, 70)).double(), x),
        (TiledLinear(nn.Linear(64, 70)).bfloat16(), x),
        (TiledLinear(nn.Linear(64, 70)).to("meta"), x),
    ]
    if int8_products() is not OneDnn:
        unreadable.append((Int8Linear(nn.Linear(64, 70)).half(), x))
    for stored, numbers in unreadable:
        with pytest.raises(TypeError, match="compiled code"):
            stored(numbers)
    with pytest.raises(ValueError, match=r"^63 inputs, .* do not fit together"):
        layer(torch.ones(1, 63))


@needs_compiled
@pytest.mark.parametrize("kind", [TiledLinear, Int8Linear])
@torch.inference_mode()
def test_the_default_dtype_and_device_of_pytorch_do_not_matter(kind):
    """transformers changes both while it builds a model, for all threads of the process."""
    linear, x = nn.Linear(64, 70), torch.randn(2, 64)
    expected = kind(linear)(x)
    before = torch.get_default_dtype()
    for dtype in (torch.bfloat16, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            with torch.device("meta"):
                assert torch.equal(kind(linear)(x), expected)
        finally:
            torch.set_default_dtype(before)


def test_where_nothing_can_be_compiled_the_layout_is_refused(monkeypatch):
    monkeypatch.setattr(compiled, "can_compile", lambda: False)
    with pytest.raises(ModelError, match=r"'tiled', which does not work here .* Choose auto"):
        apply_layout(nn.Sequential(nn.Linear(64, 64)), "tiled")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("torch.cpu.get_capabilities", lambda: {"architecture": "aarch64"}),
        ("torch.cpu.get_capabilities", lambda: {"avx2": True}),
        ("eab.engine.compiled.may_run_new_code", lambda: False),
        ("sys.platform", "darwin"),
    ],
)
def test_systems_that_cannot_compile_are_recognized(monkeypatch, name, value):
    monkeypatch.setattr(name, value)
    assert compiled.can_compile.__wrapped__() is False


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llvmlite", "llvmlite.binding"])
def test_a_missing_or_broken_llvmlite_is_no_error(name):
    """In a process of its own, as this one has imported it."""
    program = (
        f"import sys; sys.modules[{name!r}] = None; from eab.engine import compiled;"
        "assert not compiled.can_compile(); from eab.engine.models.loading import load_model;"
        "print(load_model('embedded', 'cpu').card.layout)"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert told.stdout.split()[-1] in ("prepacked", "plain")


AVX2 = {VARIABLE: "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
OFF = {VARIABLE: "off"}
OF_COMPILED_CODE = ("engine/compiled/test_attention.py", "engine/compiled/test_products.py")
OF_BOTH_WAYS = (
    "engine/caches/test_all_caches.py",
    "engine/caches/test_growth.py",
    "labs/test_padded_and_recounted.py",
    "engine/models/quantized/test_formats.py",
    "engine/models/quantized/test_layers.py",
    "engine/models/test_own_decoder.py",
    "engine/models/test_weight_layouts.py",
)


def told_with(limits, program):
    told = subprocess.run(
        [sys.executable, *program],
        cwd=ROOT,
        env=os.environ | limits,
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stdout[-3000:] + told.stderr[-3000:]
    return told.stdout


@pytest.mark.slow
@pytest.mark.parametrize("limits", [pytest.param(AVX2, marks=needs_compiled, id="avx2"), OFF])
def test_the_tests_that_depend_on_the_processor_pass(limits):
    some = OF_BOTH_WAYS if limits is OFF else (*OF_COMPILED_CODE, *OF_BOTH_WAYS)
    files = [f"tests/{file}" for file in some]
    assert " failed" not in told_with(
        limits, ["-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    )


@pytest.mark.slow
@needs_compiled
def test_the_variable_limits_what_is_compiled():
    program = (
        "from eab.engine import compiled; print(compiled.can_compile()); "
        "from eab.engine.compiled.llvm_code import LANES; print(LANES)"
    )
    assert told_with({VARIABLE: "avx2"}, ["-c", program]).split() == ["True", "8"]
    assert told_with(OFF, ["-c", program]).split()[0] == "False"
