"""Features that this processor may lack, and compiled code, which needs them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from eab.engine import compiled

HAS_BFLOAT16 = torch.backends.cpu.get_cpu_capability() != "AVX2"
needs_bfloat16 = pytest.mark.skipif(
    not HAS_BFLOAT16, reason="oneDNN multiplies in bfloat16 with AVX-512 only"
)
needs_compiled = pytest.mark.skipif(
    not compiled.can_compile(), reason="nothing can be compiled here"
)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with this many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def numbers(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    """Random numbers from a normal distribution, of this shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale
