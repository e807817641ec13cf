"""Which errors say that memory has run out: no library has one class for all of them."""

from typing import Final

import torch

# Of the CPU allocator; of CUDA, where pinned memory has an error of its own; of cuBLAS.
_WORDS: Final = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the memory of the machine, or of its GPU, did not suffice."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)
