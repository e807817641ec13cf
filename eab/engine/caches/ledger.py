"""What a cache holds and moves: bytes counted with its tensors, and blocks of rows by path.

A `Ledger` counts bytes and allocations when tensors are created and freed. Stored K and V that are
moved count as copied; the tensors created for that count as allocations. Every cache writes K and V
of new tokens once; these bytes do not count as copied.

A `BlockLedger` keeps the books of a KV cache in blocks, as in vLLM. The rows of a path are in
blocks of a fixed size, listed in its block table (PagedAttention, arXiv 2309.06180). Paths with the
same prefix list the same full blocks. The last block of a path, if it is not full, belongs to this
path alone: a fork copies it for every child but the first. It has no tensors (`caches/per_path.py`
adds them); all rows and bytes are computed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final, TypedDict

from eab.config import MAX_NEW_TOKENS
from eab.errors import MemoryLimitError
from eab.run.events import KVUsage, PathRows
from eab.settings import Whole

if TYPE_CHECKING:  # the figures count blocks without torch
    from torch import Tensor

BLOCK_SIZE: Final = 16  # rows; vLLM's default on CUDA
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

    def allocated(self, new: "Tensor", copied: int = 0) -> None:
        """Count a new tensor, of which `copied` bytes were stored elsewhere before."""
        self.allocations += 1
        self.bytes_copied += copied
        self.live_bytes += new.nbytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def freed(self, *old: "Tensor") -> None:
        """Count tensors that no longer exist."""
        self.live_bytes -= sum(tensor.nbytes for tensor in old)

    def replaced(self, old: "Tensor", new: "Tensor", copied: int) -> None:
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


class BlockLedger:
    """The blocks that the paths of one run use. Paths start and end as in `KVCache`."""

    def __init__(
        self,
        block_size: int = BLOCK_SIZE,
        row_bytes: int = 1,
        shared: bool = True,
        allocated: Callable[[int, int, int], None] = lambda *_: None,
    ) -> None:
        """Without `shared`, each path has its own blocks. `allocated` is called with each new
        block, the block that it copies, and how many of its rows. ConfigError for a wrong size.
        """
        Whole(1, MAX_NEW_TOKENS, hint="rows").check("the block size", block_size)
        self.block_size, self.row_bytes, self._shared = block_size, row_bytes, shared
        self._allocated, self._numbers = allocated, count()
        self._tables: dict[int, list[int]] = {0: []}
        self._lengths = {0: 0}
        self._references: Counter[int] = Counter()  # block -> how many tables list it
        self._allocations = self._most_blocks = self._rows_copied = 0

    @property
    def paths(self) -> tuple[int, ...]:
        """The paths that have not ended."""
        return tuple(self._tables)

    @property
    def blocks(self) -> Set[int]:
        """The blocks held."""
        return self._references.keys()

    @property
    def num_blocks(self) -> int:
        """Blocks held, each counted once."""
        return len(self._references)

    def length(self, path: int) -> int:
        """Tokens of a path."""
        return self._lengths[path]

    def block_table(self, path: int) -> tuple[int, ...]:
        """The blocks that hold the tokens of a path, in their order."""
        return tuple(self._tables[path])

    def append(self, path: int, tokens: int) -> None:
        """Add tokens to a path; new blocks are allocated when the last one is full."""
        self._tables[path] += [self._draw() for _ in range(self.blocks_missing(path, tokens))]
        self._lengths[path] += tokens

    def blocks_missing(self, path: int, tokens: int) -> int:
        """How many blocks a path needs for this many more tokens."""
        return -(-(self._lengths[path] + tokens) // self.block_size) - len(self._tables[path])

    def fork(self, path: int, children: Sequence[int]) -> None:
        """End `path`; each child lists its full blocks, and has a last block of its own."""
        table, length = self._tables.pop(path), self._lengths.pop(path)
        full = table[: length // self.block_size] if self._shared else []
        own = range(len(full) * self.block_size, length, self.block_size)
        self._tables[children[0]] = table
        for child in children[1:]:
            self._references.update(full)
            copies = [
                self._draw(table[row // self.block_size], min(self.block_size, length - row))
                for row in own
            ]
            self._tables[child] = full + copies
        self._lengths |= dict.fromkeys(children, length)

    def release(self, path: int) -> None:
        """End `path`; blocks that no other path lists become free."""
        del self._lengths[path]
        self._free(self._tables.pop(path))

    def trim(self, path: int, length: int) -> None:
        """Remove the tokens of `path` from position `length` on, such as rejected draft tokens. A
        shared block that is kept only in part is copied.
        """
        if length >= self._lengths[path]:
            return
        table, is_copied = self._tables[path], self.copies(path, length)
        self._lengths[path] = length
        kept = -(-length // self.block_size)
        self._free(table[kept:])
        del table[kept:]
        if is_copied:
            shared = table.pop()
            table.append(self._draw(shared, length % self.block_size))
            self._free([shared])

    def copies(self, path: int, length: int) -> bool:
        """Whether `trim` to this length copies a block, which is shared and kept only in part."""
        if length >= self._lengths[path] or not length % self.block_size:
            return False
        return self._references[self._tables[path][length // self.block_size]] > 1

    def usage(self, paths: Sequence[int]) -> KVUsage:
        """Rows and bytes held now; the empty rows of last blocks are spare."""
        size = self.block_size
        rests = [length % size for length in self._lengths.values() if length % size]
        used = (self.num_blocks - len(rests)) * size + sum(rests)
        shared = size * sum(tables > 1 for tables in self._references.values())
        return KVUsage(
            bytes_held=self.num_blocks * size * self.row_bytes,
            rows_shared=shared,
            rows_private=used - shared,
            rows_spare=self.num_blocks * size - used,
            rows_independent=sum(self._lengths[path] for path in paths),
            paths=tuple(map(self._path_rows, paths)),
            bytes_copied=self._rows_copied * self.row_bytes,
            allocations=self._allocations,
            peak_bytes=self._most_blocks * size * self.row_bytes,
        )

    def _path_rows(self, path: int) -> PathRows:
        listed = sum(self._references[block] > 1 for block in self._tables[path])
        shared = listed * self.block_size
        return PathRows(path, shared, self._lengths[path] - shared)

    def _draw(self, copy_of: int = 0, copied: int = 0) -> int:
        """Allocate a block, into which `copied` rows of another block are copied."""
        block = next(self._numbers)
        self._references[block] = 1
        self._allocations += 1
        self._rows_copied += copied
        self._allocated(block, copy_of, copied)
        self._most_blocks = max(self._most_blocks, self.num_blocks)
        return block

    def _free(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self._references[block] -= 1
            if not self._references[block]:
                del self._references[block]
