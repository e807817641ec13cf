"""Weights in eight bits, with or without activations in eight bits.

Both are rounded symmetrically, without zero points: x ≈ integer * scale, where the integer is
between -127 and 127.
"""

from functools import cache
from typing import Final

import torch
from torch import Tensor, nn

from eab.models.quantized.layer import QuantizedLinear

LARGEST: Final = 127
_LARGEST_OF_7_BITS: Final = 63


def quantize_rows(x: Tensor, largest: int = LARGEST) -> tuple[Tensor, Tensor]:
    """Round (R, C) floats to eight bits or fewer: integers, (R, C) int8, and scales, (R, 1)
    float32.

    The largest magnitude in a row maps to the integer `largest`; a row of zeros has a tiny scale.
    """
    x = x.float().contiguous()
    scale = x.abs().amax(1, keepdim=True).div_(largest).clamp_(min=torch.finfo(x.dtype).tiny)
    return (x / scale).round_().to(torch.int8), scale


@cache
@torch.inference_mode()
def largest_input() -> int:
    """The largest input integer whose products this processor adds up without saturating.

    Processors without VNNI add pairs of products in 16 bits, which cannot hold 2 x 255 x 127. On
    these, the input has 7 bits; PyTorch's observers call this `reduce_range`.
    """
    ones = torch.ones(32, 32)
    integers, scale = quantize_rows(ones)
    weight = torch.ops.onednn.qlinear_prepack(integers, None)
    zero_point = torch.zeros(32, dtype=torch.int32)
    sums = _products(integers, LARGEST, weight, scale[:, 0].contiguous(), zero_point)
    right = torch.allclose(sums * scale, ones @ ones, rtol=0.01)
    return LARGEST if right else _LARGEST_OF_7_BITS


def _products(
    integers: Tensor, largest: int, weight: Tensor, scale: Tensor, zero_point: Tensor
) -> Tensor:
    """Multiply unsigned inputs: oneDNN multiplies two signed integers fast only with AMX."""
    unsigned = integers.view(torch.uint8) + (largest + 1)  # modulo 256
    # The operator has one scale for the whole input, here 1; the row scales are applied afterwards.
    sums: Tensor = torch.ops.onednn.qlinear_pointwise(
        *(unsigned, 1.0, largest + 1, weight, scale, zero_point, None),
        *(1.0, 0, torch.float32, "none", [], ""),
    )
    return sums


class Int8Linear(QuantizedLinear):
    """Integer products, with one scale per output of the weight and one per row of the input.

    PyTorch's dynamic quantization has one scale for the whole input, so it is not batch-invariant.
    """

    weight: Tensor  # (in, out) int8, prepacked by oneDNN
    scale: Tensor  # (out,)
    zero_point: Tensor  # (out,), all 0

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        integers, scale = quantize_rows(linear.weight.detach())
        self._store(
            weight=torch.ops.onednn.qlinear_prepack(integers, None),
            scale=scale[:, 0].contiguous(),
            zero_point=torch.zeros(self.out_features, dtype=torch.int32),
        )

    @staticmethod
    def fits(linear: nn.Linear) -> bool:
        return True

    def _product(self, rows: Tensor) -> Tensor:
        integers, scale = quantize_rows(rows, largest_input())
        sums = _products(integers, largest_input(), self.weight, self.scale, self.zero_point)
        return sums.mul_(scale)


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
