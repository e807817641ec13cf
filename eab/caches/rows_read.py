"""The rows that layers of one kind read in a prepared batch of the tree cache.

Compiled code reads a list of the rows that each token sees. The plain way is PyTorch's: all rows
under a mask or, if that reads less, the rows of each token gathered into one batch.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from eab.caches.layers import LayerAttention, MaskKind
from eab.caches.listed_rows import ListedRows
from eab.caches.plain_rows import GatheredRows, masked_rows
from eab.caches.shape import KVShape

# Costs in units of one row that one token reads under a mask. They are
# fixed, because the same run must round in the same way every time.
GATHERED_ROW_COST: Final = 8  # copied, and read by one token only
FEW_TOKENS: Final = 4  # with fewer, reading the rows from memory takes the time


class Reading(Protocol):
    """The rows that a prepared batch reads in some of the layers.

    The query is (H, T, D), keys and values are those of all rows, (G, C, D).
    """

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float, layer: LayerAttention
    ) -> Tensor:
        """The output of attention, (T, H, D)."""

    def attend_with_lse(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """The same for an ordinary layer on a CPU, (H, T, D), and the log-sum-exp of the scores,
        (H, T).
        """


def seen_by_kind(
    kinds: Sequence[MaskKind],
    visible: NDArray[np.bool_],
    positions: NDArray[np.int64],
    row_positions: NDArray[np.int64],
) -> list[NDArray[np.bool_]]:
    """The rows that each token sees in the layers of each kind, (T, C); `visible` itself if these
    layers see all that the path sees.

    Args:
        visible: Which rows each path sees, (T, C).
        positions: The positions of the tokens, (T,).
        row_positions: The positions of the rows, (C,).
    """
    last = int(positions.max())
    return [
        visible if reach.sees_all_up_to(last) else visible & reach.sees(positions, row_positions)
        for reach, *_ in kinds
    ]


def plan_readings(
    shape: KVShape,
    kinds: Sequence[MaskKind],
    seen: Sequence[tuple[NDArray[np.bool_], Tensor]],
    row_positions: NDArray[np.int64],
    padded: bool,
) -> list[Reading]:
    """What the layers of each of these kinds read of the first rows, whose positions are given, by
    `seen_by_kind`, on the host and on the device. Padded attention reads all of them under a mask,
    so its shapes stay the same until the tensors grow.
    """
    made: dict[tuple[object, ...], Reading] = {}
    end = len(row_positions)
    for (whole, placed), kind in zip(seen, kinds, strict=True):
        key = (id(whole), *kind[1:])
        if key in made:
            continue
        rows = whole[:, :end]
        if kind.is_compiled and not padded:
            made[key] = ListedRows(rows, row_positions)
        elif kind.is_fused and not padded and gathering_reads_less(rows):
            made[key] = GatheredRows(rows, row_positions, shape.device)
        else:
            made[key] = masked_rows(shape, rows, placed[:, :end], padded)
    return [made[id(whole), *kind[1:]] for (whole, _), kind in zip(seen, kinds, strict=True)]


def gathering_reads_less(seen: NDArray[np.bool_]) -> bool:
    """Whether gathering the rows that each token sees, (T, C), reads less than a mask over all."""
    tokens, rows = seen.shape
    longest = int(np.count_nonzero(seen, axis=1).max())
    return bool(tokens * longest * GATHERED_ROW_COST < rows * max(tokens, FEW_TOKENS))
