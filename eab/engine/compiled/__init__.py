"""Matrix products and attention on CPUs, compiled by LLVM for the processor they run on.

`llvm_code.py` has the words that the functions are written in. `products.py` is the product of rows
with any kind of weights (`weights.py`), in tiles (`tiles.py`), with what is done to the rows
before. `attention.py` is attention over lists of rows. They import llvmlite, so import them only
where `can_compile` says so.
"""

import ctypes
import logging
import mmap
import os
import sys
from functools import cache
from typing import Final

import torch

# "off": compile nothing; "avx2": use no instructions beyond AVX2. Read when first needed.
VARIABLE: Final = "EAB_COMPILED"
_BEYOND_AVX2: Final = ("avx512", "amx")

_log = logging.getLogger(__name__)


@cache
def can_compile() -> bool:
    """Whether code can be compiled and run here.

    It needs llvmlite, a processor with AVX2 or AVX-512, and GNU's OpenMP, whose threads PyTorch
    uses in its wheels for Linux.
    """
    if os.environ.get(VARIABLE) == "off":
        return False
    has_vectors = has_instructions("avx2", "fma3")
    if not (sys.platform == "linux" and has_vectors and may_run_new_code()):
        return False
    try:
        from eab.engine.compiled.llvm_code import compile_and_run_nothing

        compile_and_run_nothing()
    except Exception as error:  # whatever a missing, broken or unsuitable llvmlite may raise
        _log.info("Nothing is compiled for this processor: %s", error)
        return False
    return True


def has_instructions(*names: str) -> bool:
    """Whether this processor has all of these sets of instructions, by PyTorch's names, and may
    use them.
    """
    if os.environ.get(VARIABLE) == "avx2" and any(one.startswith(_BEYOND_AVX2) for one in names):
        return False
    capabilities = torch.cpu.get_capabilities()
    return all(capabilities.get(name, False) for name in names)


def may_run_new_code() -> bool:
    """Whether the system lets a process run what it has written, which hardened ones refuse."""
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    with mmap.mmap(-1, mmap.PAGESIZE, flags=private) as page:
        start = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        run = mmap.PROT_READ | mmap.PROT_EXEC
        return bool(ctypes.CDLL(None).mprotect(start, mmap.PAGESIZE, run) == 0)
