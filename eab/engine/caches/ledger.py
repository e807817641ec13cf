"""Counts what a cache holds and moves, and limits it.

A ledger counts bytes and allocations when tensors are created and freed. Stored K and V that are
moved count as copied; the tensors created for that count as allocations. Every cache writes K and V
of new tokens once; these bytes do not count as copied.
"""

from dataclasses import dataclass
from typing import Final, TypedDict

from torch import Tensor

from eab.errors import MemoryLimitError

_MIB: Final = 2**20


class Totals(TypedDict):
    """The fields of a KVUsage that only increase."""

    bytes_copied: int
    allocations: int
    peak_bytes: int


@dataclass(slots=True)
class Ledger:
    """Counters of one cache."""

    live_bytes: int = 0
    peak_bytes: int = 0
    bytes_copied: int = 0  # bytes that were stored before and moved again
    allocations: int = 0

    def allocated(self, new: Tensor, copied: int = 0) -> None:
        """Count a new tensor, of which `copied` bytes were stored elsewhere before."""
        self.allocations += 1
        self.bytes_copied += copied
        self.live_bytes += new.nbytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def freed(self, *old: Tensor) -> None:
        """Count tensors that no longer exist."""
        self.live_bytes -= sum(tensor.nbytes for tensor in old)

    def replaced(self, old: Tensor, new: Tensor, copied: int) -> None:
        """Count `new` in place of `old`; for a moment, both existed."""
        self.allocated(new, copied)
        self.freed(old)

    def totals(self) -> Totals:
        """The counters that a KVUsage reports."""
        return Totals(
            bytes_copied=self.bytes_copied, allocations=self.allocations, peak_bytes=self.peak_bytes
        )


def check_limit(
    needed: int, limit: int, advice: str = "", what: str = "the KV cache needs"
) -> None:
    """Raise MemoryLimitError if a cache would exceed its byte limit.

    Args:
        advice: What else helps with this cache, for the error message.
        what: Start of the error message.
    """
    if needed > limit:
        other = f", {advice}" if advice else ""
        raise MemoryLimitError(
            f"{what} {needed / _MIB:.0f} MiB; kv_limit_mib allows {limit / _MIB:.0f}. "
            f"Use fewer paths or new tokens{other}, or a higher kv_limit_mib"
        )
