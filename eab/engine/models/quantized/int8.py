"""Weights in eight bits, with or without activations in eight bits."""

from functools import cache
from types import ModuleType

import torch
from torch import Tensor, nn

from eab.engine import compiled
from eab.engine.models.quantized import onednn
from eab.engine.models.quantized.layer import PackedLinear, QuantizedLinear
from eab.engine.models.quantized.onednn import quantize_rows
from eab.weight_formats import LARGEST_INT8


@cache
def products() -> ModuleType:
    """Our own on processors with AVX-512 VNNI, otherwise oneDNN's. With VNNI, both have the same
    bits.

    With AMX, oneDNN has a unit for matrices; ours was compared on processors without.
    """
    has_vnni, has_amx = map(compiled.has_instructions, ("avx512_vnni", "amx_int8"))
    if has_vnni and not has_amx and compiled.can_compile():
        from eab.engine.compiled import vnni

        return vnni
    return onednn


class Int8Linear(PackedLinear):
    """Integer products, with one scale per output of the weight and one per row of the input.

    PyTorch's dynamic quantization has one scale for the whole input, so it is not batch-invariant.
    """

    products = staticmethod(products)

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        integers, scale = quantize_rows(linear.weight.detach())
        weight, scale = products().pack(integers, scale[:, 0].contiguous())
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
