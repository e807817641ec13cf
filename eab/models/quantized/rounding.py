"""Rounding to eight bits, symmetrically and without zero points.

x ≈ integer * scale, where the integer is between -127 and 127.
"""

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
