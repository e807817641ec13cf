"""The interface of a KV cache, and the letters used for shapes.

A row holds K and V of one token, in every layer.

Shapes: P paths, T tokens in one forward pass, C rows, H query heads, G key/value heads, D head
size, V vocabulary, K logits to keep.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from eab.events import Growth, KVUsage

if TYPE_CHECKING:
    from eab.caches.shared_prefix import ReadPrefix
    from eab.caches.static_buffers import StaticBuffers


class Attends(Protocol):
    """Stores K and V of a prepared batch and computes its attention."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Store K and V of the prepared batch in one layer, and compute its attention.

        `query` is (1, H, T, D), `key` and `value` are (1, G, T, D), the output is (1, T, H, D).
        """
        ...


class ShowsRows(Protocol):
    """Shows the rows of a prepared batch to a model that computes attention itself."""

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store K and V of the prepared batch, (1, G, T, D) each, and return those of all rows,
        (G, C, D) each.
        """
        ...

    def visible_rows(self) -> tuple[Tensor, Tensor]:
        """Which of these rows each token of the prepared batch sees, (T, C) bool, and the position
        of each row in its path, (C,).
        """
        ...


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """The tokens of one run that go through the model in one forward pass."""

    cache: Attends  # what prepared the batch, usually a cache; its `attend` serves this batch
    ids: Tensor  # token ids, (T,) int64
    positions: Tensor  # position of each token in its path, (T,) int64
    # Indices of the tokens whose logits are kept, path after path, (K,) int64
    logits_indices: Tensor
    growths: tuple[Growth, ...]  # reallocations for this batch
    # The buffers that hold these tensors, if their addresses are fixed. The next batch of this size
    # overwrites them.
    static_buffers: "StaticBuffers | None" = None
    long: bool = False  # whether RoPE is as for texts beyond `KVShape.rope_switch`
    prefix: "ReadPrefix | None" = None  # rows of the prefix cache, read before its own


class KVCache(Attends, Protocol):
    """The KV rows of one run.

    Paths are identified by small integers. Path 0 exists from the start, without rows. Raises
    MemoryLimitError before the tensors would exceed the byte limit; the cache stays usable.
    """

    def reserve(self, rows: int, steps: int | None) -> Growth | None:
        """Hold at least `rows` rows; returns the reallocation, if any.

        Args:
            steps: From now on, allocate for at most this many decode steps ahead; None if their
                number is unknown.
        """
        ...

    def prepare(
        self,
        paths: Sequence[int],
        tokens: Sequence[Sequence[int]],
        logits_to_keep: Sequence[int] | None = None,
    ) -> ForwardBatch:
        """Allocate rows for new tokens; the forward pass of the returned batch fills them.

        Args:
            logits_to_keep: For each path, how many of its last tokens have their logits kept;
                by default 1.

        Returns:
            A batch with the new tokens, or with whole texts if the cache keeps no earlier rows.
        """
        ...

    def fork(self, path: int, children: Sequence[int]) -> None:
        """End `path`; each child sees all of its rows."""
        ...

    def release(self, path: int) -> None:
        """End `path`; rows that no other path sees become free."""
        ...

    def trim(self, path: int, length: int) -> None:
        """Remove the tokens of `path` from position `length` on, such as rejected draft tokens."""
        ...

    def usage(self, paths: Sequence[int]) -> KVUsage:
        """Rows and bytes held now, with the share of each of these paths."""
        ...


def logits_indices(counts: Sequence[int], logits_to_keep: Sequence[int] | None) -> list[int]:
    """Indices of the tokens whose logits are kept, in a batch of concatenated texts of `counts`
    tokens; `logits_to_keep` as in `KVCache.prepare`.
    """
    ends = itertools.accumulate(counts)
    return [
        index
        for end, last in zip(ends, logits_to_keep or [1] * len(counts), strict=True)
        for index in range(end - last, end)
    ]
