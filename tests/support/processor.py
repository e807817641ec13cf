"""Features that this processor may lack."""

import pytest
import torch

HAS_BFLOAT16 = torch.backends.cpu.get_cpu_capability() != "AVX2"
needs_bfloat16 = pytest.mark.skipif(
    not HAS_BFLOAT16, reason="oneDNN multiplies in bfloat16 with AVX-512 only"
)
