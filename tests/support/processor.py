"""Features that this processor may lack, and compiled code, which needs them."""

import pytest
import torch

from eab.engine import compiled

HAS_BFLOAT16 = torch.backends.cpu.get_cpu_capability() != "AVX2"
needs_bfloat16 = pytest.mark.skipif(
    not HAS_BFLOAT16, reason="oneDNN multiplies in bfloat16 with AVX-512 only"
)
needs_compiled = pytest.mark.skipif(
    not compiled.can_compile(), reason="nothing can be compiled here"
)
