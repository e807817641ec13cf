"""Matrix products for few rows on CPUs, compiled by LLVM for the processor when first needed.

`llvm_code.py` has the words that they are written in, `tiles.py` what they have in common, and
`float32.py` and `vnni.py` one product each: `pack` stores a weight in the order in which `product`
reads it. They import llvmlite, so import them only where `available` says so.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch


@cache
def available() -> bool:
    """Whether the products run here.

    They need llvmlite, a processor with AVX2 or AVX-512, and GNU's OpenMP, whose threads PyTorch
    uses in its wheels for Linux.
    """
    has_vectors = torch.cpu.get_capabilities().get("avx2", False)
    return bool(find_spec("llvmlite") and has_vectors and openmp_path())


def openmp_path() -> Path | None:
    """The library with the threads of PyTorch."""
    return next((Path(torch.__file__).parent / "lib").glob("libgomp*"), None)
