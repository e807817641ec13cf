"""Weights as integers of eight or four bits, with the products of this processor: our own where
they are compiled, otherwise those of oneDNN and ATen.
"""

from functools import cache
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from eab.engine import compiled
from eab.engine.models.quantized.layer import PackedLinear, Products, QuantizedLinear
from eab.weight_formats import LARGEST_INT8


def quantize_rows(x: Tensor, largest: int = LARGEST_INT8) -> tuple[Tensor, Tensor]:
    """Round (R, C) floats to eight bits or fewer: x ≈ integer * scale, symmetrically, without zero
    points. Returns integers, (R, C) int8, and scales, (R, 1) float32.

    The largest magnitude in a row maps to the integer `largest`; a row of zeros has a tiny scale.
    """
    x = x.float().contiguous()
    scale = x.abs().amax(1, keepdim=True).div_(largest).clamp_(min=torch.finfo(x.dtype).tiny)
    return (x / scale).round_().to(torch.int8), scale


_LARGEST_OF_7_BITS: Final = 63


class OneDnn:
    """Products of eight-bit integers by oneDNN, on any processor."""

    @staticmethod
    def pack(integers: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """integers (out, in) int8 and scale (out,), as oneDNN reads them."""
        return torch.ops.onednn.qlinear_prepack(integers, None), scale

    @staticmethod
    def part(weight: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        """Not compiled, so there is none."""

    @staticmethod
    def product(rows: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        """Round rows, (R, in) float32, and multiply them by what `pack` made: (R, out) float32."""
        integers, row_scale = quantize_rows(rows, largest_input())
        return _scaled_sums(integers, largest_input(), weight, scale).mul_(row_scale)


@cache
@torch.inference_mode()
def largest_input() -> int:
    """The largest input integer whose products this processor adds up without saturating.

    Processors without VNNI add pairs of products in 16 bits, which cannot hold 2 x 255 x 127. On
    these, the input has 7 bits; PyTorch's observers call this `reduce_range`.
    """
    ones = torch.ones(32, 32, dtype=torch.float32, device="cpu")
    integers, scale = quantize_rows(ones)
    sums = _scaled_sums(integers, LARGEST_INT8, *OneDnn.pack(integers, scale[:, 0].contiguous()))
    right = torch.allclose(sums * scale, ones @ ones, rtol=0.01)
    return LARGEST_INT8 if right else _LARGEST_OF_7_BITS


def _scaled_sums(integers: Tensor, largest: int, weight: Tensor, scale: Tensor) -> Tensor:
    """Multiply unsigned inputs: oneDNN multiplies two signed integers fast only with AMX."""
    unsigned = integers.view(torch.uint8) + (largest + 1)  # modulo 256
    # The operator has one scale for the whole input, here 1; the row scales are applied afterwards.
    sums: Tensor = torch.ops.onednn.qlinear_pointwise(
        *(unsigned, 1.0, largest + 1, weight, scale, _zero_points(len(scale)), None),
        *(1.0, 0, torch.float32, "none", [], ""),
    )
    return sums


@cache
def _zero_points(outputs: int) -> Tensor:
    return torch.zeros(outputs, dtype=torch.int32, device="cpu")


@cache
def int8_products() -> Products:
    """Our own on processors with AVX-512 VNNI, otherwise oneDNN's. With VNNI, both have the same
    bits.

    With AMX, oneDNN has a unit for matrices; ours was compared on processors without.
    """
    has_vnni, has_amx = map(compiled.has_instructions, ("avx512_vnni", "amx_int8"))
    if has_vnni and not has_amx and compiled.can_compile():
        from eab.engine.compiled.weights import Int8Weights

        return Int8Weights
    return OneDnn


class Int8Linear(PackedLinear):
    """Integer products, with one scale per output of the weight and one per row of the input.

    PyTorch's dynamic quantization has one scale for the whole input, so it is not batch-invariant.
    """

    products = staticmethod(int8_products)

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        integers, scale = quantize_rows(linear.weight.detach())
        weight, scale = int8_products().pack(integers, scale[:, 0].contiguous())
        self._store(weight=weight, constants=scale)

    @staticmethod
    def fits(linear: nn.Linear) -> bool:
        """Sums have 32 bits."""
        return linear.in_features * LARGEST_INT8**2 < 2**31


class Int8WeightOnlyLinear(QuantizedLinear):
    """Eight-bit weights with one scale per output; the input is bfloat16."""

    weight: Tensor  # (out, in) int8
    scale: Tensor  # (out,) bfloat16

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        integers, scale = quantize_rows(linear.weight.detach())
        self._store(weight=integers, scale=scale[:, 0].to(torch.bfloat16))

    @staticmethod
    def fits(linear: nn.Linear) -> bool:
        """The operator reads 16 inputs at a time, without checking that they exist."""
        return linear.in_features % 16 == 0

    def _product(self, rows: Tensor) -> Tensor:
        return torch._weight_int8pack_mm(rows.to(torch.bfloat16), self.weight, self.scale)


GROUP: Final = 32  # neighbouring weights, which share a scale and a zero point
LEVELS: Final = 16
_MIDDLE: Final = LEVELS // 2


def quantize_groups(weight: Tensor, group: int = GROUP) -> tuple[Tensor, Tensor, Tensor]:
    """Round (out, in) weights to four bits: weight ≈ (integer - 8) * scale + zero.

    `group` neighbouring weights of an output share a scale and a zero point; `group` divides `in`.

    Returns:
        Integers from 0 to 15, (out, in) int32; scale and zero, (out, in / group) bfloat16.
    """
    groups = weight.float().contiguous().unflatten(1, (-1, group))
    low, high = groups.amin(-1), groups.amax(-1)
    scale = ((high - low) / (LEVELS - 1)).clamp(min=1e-8).to(torch.bfloat16)
    zero = (low + _MIDDLE * scale.float()).to(torch.bfloat16)
    steps = (groups - zero.float()[..., None]) / scale.float()[..., None]
    integers = (steps.round() + _MIDDLE).clamp(0, LEVELS - 1).to(torch.int32)
    return integers.flatten(1), scale, zero


class Aten:
    """Products of four-bit weights by ATen, on any processor."""

    @staticmethod
    def pack(integers: Tensor, scale: Tensor, zero: Tensor) -> tuple[Tensor, Tensor]:
        """Integers from 0 to 15, (out, in), and scale and zero, (out, in / group) bfloat16, as ATen
        reads them.
        """
        weight = torch.ops.aten._convert_weight_to_int4pack_for_cpu(integers, 1)
        return weight, torch.stack([scale, zero], -1).transpose(0, 1).contiguous()

    @staticmethod
    def part(weight: Tensor, scale_and_zero: Tensor, bias: Tensor | None) -> None:
        """Not compiled, so there is none."""

    @staticmethod
    def product(rows: Tensor, weight: Tensor, scale_and_zero: Tensor) -> Tensor:
        """rows (R, in) times what `pack` made: (R, out) bfloat16."""
        group = rows.shape[1] // scale_and_zero.shape[0]
        out: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            rows.to(torch.bfloat16), weight, group, scale_and_zero
        )
        return out


@cache
def int4_products() -> Products:
    """Our own on processors with AVX-512, otherwise ATen's, which uses AMX where there is any. Both
    have the same bits.
    """
    has_amx = compiled.has_instructions("amx_bf16")
    if compiled.has_instructions("avx512_f") and not has_amx and compiled.can_compile():
        from eab.engine.compiled.weights import Int4Weights

        return Int4Weights
    return Aten


class Int4Linear(PackedLinear):
    """Four-bit weights; the input is bfloat16.

    If the number of inputs is not a multiple of the group size, it is padded with zeros.
    """

    products = staticmethod(int4_products)

    def __init__(self, linear: nn.Linear, group: int = GROUP) -> None:
        super().__init__(linear)
        self._filled = -linear.in_features % group
        weight = functional.pad(linear.weight.detach(), (0, self._filled))
        weight, constants = int4_products().pack(*quantize_groups(weight, group))
        self._store(weight=weight, constants=constants)

    @staticmethod
    def fits(linear: nn.Linear) -> bool:
        """The operator computes 16 outputs at a time."""
        return linear.out_features % 16 == 0
