"""What the engine asks of a KV cache, and the alphabet of shapes.

P paths, T tokens in one forward pass, C rows of K and V, H query heads, G key/value heads, D head
size, V vocabulary. A row holds K and V of one token, in every layer.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from eab.events import Growth, KVUsage

if TYPE_CHECKING:
    from eab.caches.static_buffers import StaticBuffers


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """The tokens of one run that go through the model together.

    ids, positions: (T,) int64. keep: int64, the tokens whose logits are wanted, path after path.
    frame: what all these tensors belong to, if their addresses stay; then the next pass of this
    size overwrites them.
    """

    cache: "KVCache"
    ids: Tensor
    positions: Tensor
    keep: Tensor
    growths: tuple[Growth, ...]
    frame: "StaticBuffers | None" = None


class KVCache(Protocol):
    """The KV rows of one run. Paths are named by small integers; path 0 exists from the start,
    without rows.

    MemoryLimitError comes before the tensors would hold more bytes than the cache's limit; the
    cache stays usable.
    """

    def reserve(self, rows: int, steps: int) -> Growth | None:
        """Hold at least `rows` rows, and allocate at most `steps` decode steps ahead from now on.

        A cache that never allocates ahead has nothing to do here.
        """
        ...

    def pack(
        self,
        paths: Sequence[int],
        tokens: Sequence[Sequence[int]],
        wanted: Sequence[int] | None = None,
    ) -> ForwardBatch:
        """Make room for `tokens[i]` at the end of `paths[i]`; the forward pass of the result fills
        it.

        The pass holds the new tokens, or whole texts where older rows are not kept. Logits are
        wanted for the last `wanted[i]` tokens of each path; by default for the last one.
        """
        ...

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Store key, value (1, G, T, D) of the pass just packed; query (1, H, T, D) -> output (1,
        T, H, D).
        """
        ...

    def fork(self, path: int, children: Sequence[int]) -> None:
        """End `path`; each child sees all of its rows."""
        ...

    def release(self, path: int) -> None:
        """End `path`; the rows that only it saw are free again."""
        ...

    def trim(self, path: int, length: int) -> None:
        """Forget the tokens of `path` from position `length` on (drafts that speculation
        rejects).
        """
        ...

    def usage(self, paths: Sequence[int]) -> KVUsage:
        """Rows and bytes now, with the share of each of these paths."""
        ...


def wanted_lines(counts: Sequence[int], wanted: Sequence[int] | None) -> list[int]:
    """Of texts of `counts[i]` tokens, one after the other, the places of the last `wanted[i]`
    tokens of each.
    """
    ends = itertools.accumulate(counts)
    return [
        line
        for end, last in zip(ends, wanted or [1] * len(counts), strict=True)
        for line in range(end - last, end)
    ]
