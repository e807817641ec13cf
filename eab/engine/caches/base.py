"""The interface of a KV cache, and the letters used for shapes.

A row holds K and V of one token, in every layer.

Shapes: P paths, T tokens in one forward pass, C rows, H query heads, G key/value heads, D head
size, V vocabulary, K logits to keep.
"""

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from eab.engine.caches.shape import to_device
from eab.run.events import Growth, KVUsage

if TYPE_CHECKING:
    from eab.engine.caches.attention import ReadPrefix
    from eab.engine.caches.kv_pool import StaticBuffers


class Attends(Protocol):
    """Stores K and V of a prepared batch and computes its attention."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Store K and V of the prepared batch in one layer, and compute its attention.

        `query` is (1, H, T, D), `key` and `value` are (1, G, T, D), the output is (1, T, H, D).
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


class KVCache(Attends):
    """The KV rows of one run.

    Paths are identified by small integers. Path 0 exists from the start, without rows. Raises
    MemoryLimitError before the tensors would exceed the byte limit; the cache stays usable.

    A cache that allocates nothing ahead, cannot free its rows or reuse those of other runs, or
    whose model keeps K and V itself, keeps the defaults.

    Attributes:
        rows_in_place: Rows that it reads elsewhere, before its own; they count towards the limit.
    """

    rows_in_place: int = 0

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        raise NotImplementedError("K and V are not in this cache")

    def reserve(self, rows: int, steps: int | None) -> Growth | None:
        """Hold at least `rows` rows; returns the reallocation, if any.

        Args:
            steps: From now on, allocate for at most this many decode steps ahead; None if their
                number is unknown.
        """
        return None

    @abstractmethod
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

    @abstractmethod
    def fork(self, path: int, children: Sequence[int]) -> None:
        """End `path`; each child sees all of its rows."""

    @abstractmethod
    def release(self, path: int) -> None:
        """End `path`; rows that no other path sees become free."""

    @abstractmethod
    def trim(self, path: int, length: int) -> None:
        """Remove the tokens of `path` from position `length` on, such as rejected draft tokens."""

    @abstractmethod
    def usage(self, paths: Sequence[int]) -> KVUsage:
        """Rows and bytes held now, with the share of each of these paths."""

    @property
    def bytes_freeable(self) -> int:
        """Bytes that `free` would free."""
        return 0

    def most_bytes_after(self, tokens: int, paths: int, rows: int) -> int:
        """The most that `bytes_freeable` can be after the next pass.

        Args:
            tokens: The most tokens in the pass, of all `paths` together, with draft tokens.
            rows: The rows to reserve before it.
        """
        return 0

    def free(self) -> None:
        """Free what can be computed again. Until that is done, only `prepare_freed` prepares."""

    @property
    def freed_tokens(self) -> int:
        """How many freed tokens are to be computed again; one that paths share counts once."""
        return 0

    def prepare_freed(self, limit: int) -> ForwardBatch:
        """A batch of the next freed tokens, about `limit` of them; its logits are not used."""
        raise NotImplementedError

    def begin_with(self, text: Sequence[int]) -> int:
        """Reuse the rows of the longest known prefix of a text; returns its length. Must come
        before any other call.
        """
        return 0

    def keep(self, path: int, text: Sequence[int]) -> None:
        """Let other runs reuse the rows of a path; all tokens of `text` are computed."""

    def let_go(self) -> None:
        """Release what other runs may read, too; nothing more is computed."""


def batch_of(
    cache: Attends,
    device: torch.device,
    texts: Sequence[Sequence[int]],
    starts: Sequence[int],
    logits_to_keep: Sequence[int] | None,
) -> ForwardBatch:
    """The batch of these tokens of each path, from its position in `starts` on; `logits_to_keep` as
    in `KVCache.prepare`.
    """
    ids = [token for text in texts for token in text]
    pairs = zip(texts, starts, strict=True)
    positions = [start + index for text, start in pairs for index in range(len(text))]
    kept = logits_indices([len(text) for text in texts], logits_to_keep)
    placed_ids, at, indices = to_device(device, ids, positions, kept)
    return ForwardBatch(cache, placed_ids, at, indices, growths=())


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
