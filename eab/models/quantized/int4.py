"""Weights in four bits; groups of neighbouring weights share a scale and a zero point."""

from functools import cache
from typing import TYPE_CHECKING, Final, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from eab import compiled
from eab.models.quantized import aten
from eab.models.quantized.layer import QuantizedLinear

if TYPE_CHECKING:
    from eab.compiled.products import Part

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


class Products(Protocol):
    """One way to multiply by four-bit weights. All have the same bits."""

    def pack(self, integers: Tensor, scale: Tensor, zero: Tensor) -> tuple[Tensor, Tensor]:
        """What `quantize_groups` returns, in the order in which `product` reads it."""

    def part(self, weight: Tensor, constants: Tensor, bias: Tensor | None) -> "Part | None":
        """These for `eab.compiled.products`; None if the product is not compiled."""

    def product(self, rows: Tensor, weight: Tensor, constants: Tensor) -> Tensor:
        """rows (R, in) float32, rounded to bfloat16 -> (R, out or more), rounded to bfloat16."""


@cache
def products() -> Products:
    """Our own on processors with AVX-512, otherwise ATen's, which uses AMX where there is any."""
    has_amx = compiled.has_instructions("amx_bf16")
    if compiled.has_instructions("avx512_f") and not has_amx and compiled.can_compile():
        from eab.compiled import int4

        return int4
    return aten


class Int4Linear(QuantizedLinear):
    """Four-bit weights; the input is bfloat16.

    If the number of inputs is not a multiple of the group size, it is padded with zeros.
    """

    weight: Tensor  # uint8, packed for this processor
    constants: Tensor  # scales and zeros in bfloat16, likewise

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

    def part(self) -> "Part | None":
        """The layer for `eab.compiled.products`; None if its product is not compiled."""
        return None if self._filled else products().part(self.weight, self.constants, self.bias)

    def _product(self, rows: Tensor) -> Tensor:
        if self._filled:
            rows = functional.pad(rows, (0, self._filled))
        out = products().product(rows.float(), self.weight, self.constants)
        return out if out.shape[1] == self.out_features else out[:, : self.out_features]
