"""A frame: the tensors of a decode pass at addresses that stay. The next pass of the same size only
writes new numbers
there, which is what a captured pass needs: it reads the same memory whenever it is replayed.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eab.caches.shape import KVShape

MOST_TOKENS: Final = 128  # larger passes keep a GPU busy by themselves
MOST_FRAMES: Final = 8  # each holds a mask
ALIGNED: Final = (
    8  # numbers: CUDA's attention kernels want the lines of a mask to begin at such multiples
)


class BufferEpoch:
    """The time between two growths of a cache. What was captured in it lives and dies together."""


class StaticBuffers:
    """For passes of so many tokens, over a cache of so many rows, with logits wanted of so many
    tokens.

    ids, positions, rows: (T,), keep: (K,), all int64. mask: (g * T, C) in the cache's dtype, added
    to the scores.
    """

    def __init__(
        self, shape: KVShape, tokens: int, wanted: int, rows: int, era: BufferEpoch
    ) -> None:
        self.era = era
        self._device = device = shape.device
        pinned = device.type == "cuda"
        self._waiting = torch.empty(3 * tokens + wanted, dtype=torch.int64, pin_memory=pinned)
        self._numbers = torch.empty(3 * tokens + wanted, dtype=torch.int64, device=device)
        self.ids, self.positions, self.rows, self.keep = self._numbers.split(
            [tokens, tokens, tokens, wanted]
        )
        self._seen_waiting = torch.empty((tokens, rows), dtype=torch.bool, pin_memory=pinned)
        self._seen = torch.empty((tokens, rows), dtype=torch.bool, device=device)
        width = -(-rows // ALIGNED) * ALIGNED
        self.mask = torch.empty((shape.group * tokens, width), dtype=shape.dtype, device=device)[
            :, :rows
        ]
        self._sent = torch.cuda.Event() if pinned else None  # what waits has reached the device

    def fill(
        self,
        ids: Sequence[int],
        positions: NDArray[np.int64],
        rows: NDArray[np.int64],
        keep: Sequence[int],
        seen: NDArray[np.bool_],
    ) -> None:
        """Write the numbers of the next pass, in two transfers, in inference mode if the frame was
        made in it.

        seen: (T, C), which rows each token sees.
        """
        if self._sent is not None:
            self._sent.synchronize()
        self._waiting.copy_(torch.from_numpy(np.concatenate([ids, positions, rows, keep])))
        self._seen_waiting.copy_(torch.from_numpy(seen))
        self._numbers.copy_(self._waiting, non_blocking=True)
        self._seen.copy_(self._seen_waiting, non_blocking=True)
        if self._sent is not None:
            self._sent.record(torch.cuda.current_stream(self._device))
        by_group: Tensor = self.mask.view(-1, *self._seen.shape)
        by_group.zero_().masked_fill_(~self._seen, float("-inf"))


class StaticBufferPool:
    """The frames of one cache in one era: for small passes of a size that has come twice before, as
    it will come again.

    The first few such sizes have frames, and keep them: frames that are replaced one by one would
    take captured passes with them one by one.
    """

    def __init__(self, shape: KVShape, rows: int) -> None:
        self._shape, self._rows, self._era = shape, rows, BufferEpoch()
        self._came: Counter[tuple[int, int]] = Counter()  # (tokens, wanted)
        self._frames: dict[tuple[int, int], StaticBuffers] = {}

    def of(self, tokens: int, wanted: int) -> StaticBuffers | None:
        """The frame for a pass of this size, if it is to have one."""
        size = (tokens, wanted)
        frame = self._frames.get(size)
        self._came[size] += 1
        returns = self._came[size] > 2 and tokens <= MOST_TOKENS
        if frame is None and returns and len(self._frames) < MOST_FRAMES:
            frame = self._frames[size] = StaticBuffers(
                self._shape, tokens, wanted, self._rows, self._era
            )
        return frame
