"""What a cache's tensors cost: counts taken from the tensors themselves, as they come and go.

Counted alike for all caches: K and V that were stored before and are moved again, and each tensor
that is made for it. The new tokens' own K and V are written once by every cache; those bytes are
not counted as copied.
"""

from dataclasses import dataclass
from typing import TypedDict

from torch import Tensor

from eab.errors import MemoryLimitError

_MIB = 2**20


class Totals(TypedDict):
    """The part of a KVUsage that only grows."""

    bytes_copied: int
    allocations: int
    peak_bytes: int


@dataclass(slots=True)
class Ledger:
    """Bytes alive now, the most that were alive at once, bytes copied, and tensors made."""

    live_bytes: int = 0
    peak_bytes: int = 0
    bytes_copied: int = 0
    allocations: int = 0

    def made(self, new: Tensor, copied: int = 0) -> None:
        """A tensor came to life; so many of its bytes were stored elsewhere before."""
        self.allocations += 1
        self.bytes_copied += copied
        self.live_bytes += new.nbytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def dropped(self, *old: Tensor) -> None:
        """These tensors are gone."""
        self.live_bytes -= sum(tensor.nbytes for tensor in old)

    def replaced(self, old: Tensor, new: Tensor, copied: int) -> None:
        """`new` took the place of `old`; for a moment both were alive."""
        self.made(new, copied)
        self.dropped(old)

    def totals(self) -> Totals:
        """What has been counted so far."""
        return Totals(
            bytes_copied=self.bytes_copied, allocations=self.allocations, peak_bytes=self.peak_bytes
        )


def check_limit(
    needed: int, limit: int, advice: str = "", what: str = "the KV cache needs"
) -> None:
    """MemoryLimitError if the cache would hold more bytes than it may; `advice`: what else helps
    with this cache.
    """
    if needed > limit:
        other = f", {advice}" if advice else ""
        raise MemoryLimitError(
            f"{what} {needed / _MIB:.0f} MiB; kv_limit_mib allows {limit / _MIB:.0f}. Use fewer paths or "
            f"new tokens{other}, or a higher kv_limit_mib"
        )
