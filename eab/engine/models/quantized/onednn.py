"""Products of eight-bit integers by oneDNN, on any processor. Numbers are rounded symmetrically,
without zero points: x ≈ integer * scale, where the integer is between -127 and 127.
"""

from functools import cache
from typing import Final

import torch
from torch import Tensor

from eab.weight_formats import LARGEST_INT8


def quantize_rows(x: Tensor, largest: int = LARGEST_INT8) -> tuple[Tensor, Tensor]:
    """Round (R, C) floats to eight bits or fewer: integers, (R, C) int8, and scales, (R, 1)
    float32.

    The largest magnitude in a row maps to the integer `largest`; a row of zeros has a tiny scale.
    """
    x = x.float().contiguous()
    scale = x.abs().amax(1, keepdim=True).div_(largest).clamp_(min=torch.finfo(x.dtype).tiny)
    return (x / scale).round_().to(torch.int8), scale


_LARGEST_OF_7_BITS: Final = 63


def pack(integers: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """integers (out, in) int8 and scale (out,), as oneDNN reads them."""
    return torch.ops.onednn.qlinear_prepack(integers, None), scale


def part(weight: Tensor, scale: Tensor, bias: Tensor | None) -> None:
    """Not compiled, so there is none."""


def product(rows: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """Round the rows, (R, in) float32, and multiply them by what `pack` made: (R, out) float32."""
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
    sums = _scaled_sums(integers, LARGEST_INT8, *pack(integers, scale[:, 0].contiguous()))
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
