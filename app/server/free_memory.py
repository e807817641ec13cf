"""Returns freed memory to the operating system; glibc would keep much of it."""

import ctypes
import gc
from contextlib import suppress


def give_back() -> None:
    """Collect garbage, and return free memory if the C library can (takes a tenth of a second)."""
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):  # macOS, musl and Windows cannot
        ctypes.CDLL(None).malloc_trim(0)
