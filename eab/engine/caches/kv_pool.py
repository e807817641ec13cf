"""Tensors at fixed addresses for CUDA graphs: K and V, which runs borrow in turn so that graphs
outlast a run, and the inputs of decode batches.

A CUDA graph reads and writes fixed addresses. So the tensors of a run, with the static buffers of
its batches, are kept when they have been replaced or the run has ended, and a later run that needs
as many rows takes them, with their graphs. Rows come in whole blocks, because equal numbers recur.

The next batch of the same size only writes new numbers into the static buffers of its inputs.
"""

import math
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eab.engine.caches.attention import empty_mask, fill_mask
from eab.engine.caches.shape import KVShape

MAX_TOKENS: Final = 128  # larger batches keep a GPU busy without CUDA graphs
MAX_BUFFERS: Final = 32  # per epoch; each holds a mask


class BufferEpoch:
    """What has the same tensors; its CUDA graphs are discarded together."""


class StaticBuffers:
    """Input buffers for batches of one size over a cache with a fixed number of rows: `ids`,
    `positions`, `rows`, (T,) int64, `logits_indices`, (K,) int64, and a mask for each kind
    that the layers need.
    """

    def __init__(
        self, shape: KVShape, tokens: int, logits: int, rows: int, epoch: BufferEpoch
    ) -> None:
        """Allocate buffers for T `tokens`, of which K have `logits`, over C `rows`."""
        self.epoch = epoch
        self._device = device = shape.device
        pinned = device.type == "cuda"
        count, seen = 3 * tokens + logits, (len(shape.mask_kinds), tokens, rows)
        size = 8 * count + math.prod(seen)
        self._staging = torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=pinned)
        self._held = torch.empty(size, dtype=torch.uint8, device=device)
        # First the numbers, then what the tokens see
        staged, held = (
            (each[: 8 * count].view(torch.int64), each[8 * count :].view(torch.bool).view(seen))
            for each in (self._staging, self._held)
        )
        self._numbers, self._seen_staging = staged
        numbers, self._seen = held
        self.ids, self.positions, self.rows, self.logits_indices = numbers.split(
            [tokens, tokens, tokens, logits]
        )
        self.masks = [empty_mask(tokens, rows, shape.dtype, device) for _ in shape.mask_kinds]
        # Recorded when the pinned staging buffers have been copied to the device.
        self._copied = torch.cuda.Event() if pinned else None

    def fill(
        self,
        ids: Sequence[int],
        positions: NDArray[np.int64],
        rows: NDArray[np.int64],
        logits_indices: Sequence[int],
        seen: Sequence[NDArray[np.bool_]],
    ) -> None:
        """Write the next batch, in one transfer to the device; `seen` says for each kind which
        rows each token sees, (T, C).

        Must be called in inference mode if the buffers were allocated in it.
        """
        if self._copied is not None:
            self._copied.synchronize()
        np.concatenate([ids, positions, rows, logits_indices], out=self._numbers.numpy())
        np.stack(seen, out=self._seen_staging.numpy())
        self._held.copy_(self._staging, non_blocking=True)
        if self._copied is not None:
            self._copied.record(torch.cuda.current_stream(self._device))
        for mask, own in zip(self.masks, self._seen, strict=True):
            fill_mask(mask, own)


class StaticBufferPool:
    """The static buffers of one cache in one epoch.

    A small batch size gets buffers once it has been seen twice, as it will likely recur. Only the
    first few sizes get buffers, and keep them: replacing buffers would discard their CUDA graphs.
    """

    def __init__(self, shape: KVShape, rows: int) -> None:
        self._shape, self._rows, self._epoch = shape, rows, BufferEpoch()
        self._times_seen: Counter[tuple[int, int]] = Counter()  # by (tokens, logits)
        self._buffers: dict[tuple[int, int], StaticBuffers] = {}

    def get(self, tokens: int, logits: int) -> StaticBuffers | None:
        """The buffers for a batch of this size; None if it has none."""
        size = (tokens, logits)
        buffers = self._buffers.get(size)
        self._times_seen[size] += 1
        recurs = self._times_seen[size] > 2 and tokens <= MAX_TOKENS
        if buffers is None and recurs and len(self._buffers) < MAX_BUFFERS:
            buffers = self._buffers[size] = StaticBuffers(
                self._shape, tokens, logits, self._rows, self._epoch
            )
        return buffers


BLOCK: Final = 128  # rows
MAX_KEPT: Final = 12  # sets of tensors; each has a stream of its own (models/cuda_graphs.py)


@dataclass(frozen=True, eq=False, slots=True)
class RowSet:
    """The tensors of one run, (G, C, D) for each layer that has its own, and their buffers."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    buffers: StaticBufferPool
    era: int  # how often the pool had been cleared

    @property
    def rows(self) -> int:
        """Rows that the tensors hold."""
        return int(self.keys[0].shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))


class KVPool:
    """The tensors of a model that no run uses, the latest last."""

    def __init__(self, shape: KVShape, byte_limit: int) -> None:
        """Make an empty pool, which keeps at most this many bytes."""
        self._shape, self._byte_limit, self._kept = shape, byte_limit, list[RowSet]()
        self._lock = threading.RLock()  # a run may be collected, and give back, in any thread
        self._era = 0

    @staticmethod
    def in_blocks(rows: int) -> int:
        """The rows, rounded up to whole blocks."""
        return -(-rows // BLOCK) * BLOCK

    def take(self, rows: int) -> RowSet:
        """Tensors of this number of rows, with any content."""
        with self._lock:
            for own in reversed(self._kept):
                if own.rows == rows:
                    self._kept.remove(own)
                    return own
        try:
            return self._new(rows)
        except torch.OutOfMemoryError:
            self.clear()
        return self._new(rows)  # outside the handler, which keeps tensors alive

    def _new(self, rows: int) -> RowSet:
        keys, values = map(tuple, self._shape.empty_tensors(rows))
        return RowSet(keys, values, StaticBufferPool(self._shape, rows), self._era)

    def give_back(self, own: RowSet) -> None:
        """Keep the tensors; where that is too much, those that have waited longest are freed."""
        with self._lock:
            if own.era == self._era:
                self._kept.append(own)
            while len(self._kept) > MAX_KEPT or self._bytes > self._byte_limit:
                del self._kept[0]

    @property
    def _bytes(self) -> int:
        return sum(each.nbytes for each in self._kept)

    def clear(self) -> None:
        """Free all tensors that no run uses, and those of running runs when these end."""
        with self._lock:
            self._kept.clear()
            self._era += 1
