"""Numbers from the host to the device: each transfer makes the host wait, so several go as one."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(
    device: torch.device, *numbers: Sequence[int] | NDArray[np.int64]
) -> tuple[Tensor, ...]:
    """Each of these lists as a tensor, (n,) int64."""
    together = torch.from_numpy(np.concatenate(numbers, dtype=np.int64)).to(device)
    parts: tuple[Tensor, ...] = together.split([len(array) for array in numbers])
    return parts
