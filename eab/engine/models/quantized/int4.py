"""Weights in four bits; groups of neighbouring weights share a scale and a zero point."""

from functools import cache
from types import ModuleType
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from eab.engine import compiled
from eab.engine.models.quantized import aten
from eab.engine.models.quantized.layer import PackedLinear

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


@cache
def products() -> ModuleType:
    """Our own on processors with AVX-512, otherwise ATen's, which uses AMX where there is any. Both
    have the same bits.
    """
    has_amx = compiled.has_instructions("amx_bf16")
    if compiled.has_instructions("avx512_f") and not has_amx and compiled.can_compile():
        from eab.engine.compiled import int4

        return int4
    return aten


class Int4Linear(PackedLinear):
    """Four-bit weights; the input is bfloat16.

    If the number of inputs is not a multiple of the group size, it is padded with zeros.
    """

    products = staticmethod(products)

    def __init__(self, linear: nn.Linear, group: int = GROUP) -> None:
        super().__init__(linear)
        self._filled = -linear.in_features % group
        weight = functional.pad(linear.weight.detach(), (0, self._filled))
        weight, constants = products().pack(*quantize_groups(weight, group))
        self._store(weight=weight, constants=constants)

    @staticmethod
    def fits(linear: nn.Linear) -> bool:
        """The operator computes 16 outputs at a time."""
        return linear.out_features % 16 == 0
