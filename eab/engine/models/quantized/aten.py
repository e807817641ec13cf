"""Products of four-bit weights by ATen, on any processor."""

import torch
from torch import Tensor


def pack(integers: Tensor, scale: Tensor, zero: Tensor) -> tuple[Tensor, Tensor]:
    """Integers from 0 to 15, (out, in), and scale and zero, (out, in / group) bfloat16, as ATen
    reads them.
    """
    weight = torch.ops.aten._convert_weight_to_int4pack_for_cpu(integers, 1)
    return weight, torch.stack([scale, zero], -1).transpose(0, 1).contiguous()


def part(weight: Tensor, scale_and_zero: Tensor, bias: Tensor | None) -> None:
    """Not compiled, so there is none."""


def product(rows: Tensor, weight: Tensor, scale_and_zero: Tensor) -> Tensor:
    """rows (R, in) times what `pack` made: (R, out) bfloat16."""
    group = rows.shape[1] // scale_and_zero.shape[0]
    out: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
        rows.to(torch.bfloat16), weight, group, scale_and_zero
    )
    return out
