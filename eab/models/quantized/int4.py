"""Weights in four bits; groups of neighbouring weights share a scale and a zero point."""

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from eab.models.quantized.layer import QuantizedLinear

GROUP: Final = 32
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


class Int4Linear(QuantizedLinear):
    """Four-bit weights; the input is bfloat16.

    If the number of inputs is not a multiple of the group size, it is padded with zeros.
    """

    weight: Tensor  # (out, in / 2) uint8, packed for this processor
    scale_and_zero: Tensor  # (in / group, out, 2) bfloat16

    def __init__(self, linear: nn.Linear, group: int = GROUP) -> None:
        super().__init__(linear)
        self._group, self._filled = group, -linear.in_features % group
        weight = functional.pad(linear.weight.detach(), (0, self._filled))
        integers, scale, zero = quantize_groups(weight, group)
        self._store(
            weight=torch.ops.aten._convert_weight_to_int4pack_for_cpu(integers, 1),
            scale_and_zero=torch.stack([scale, zero], -1).transpose(0, 1).contiguous(),
        )

    @staticmethod
    def fits(linear: nn.Linear) -> bool:
        """The operator computes 16 outputs at a time."""
        return linear.out_features % 16 == 0

    def _product(self, rows: Tensor) -> Tensor:
        rows = rows.to(torch.bfloat16)
        if self._filled:
            rows = functional.pad(rows, (0, self._filled))
        out: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            rows, self.weight, self._group, self.scale_and_zero
        )
        return out
