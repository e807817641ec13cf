"""What the attention of a layer is like, as values: caches know no model families."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Reach:
    """Which tokens of its own path a token reads: all up to itself, or fewer."""

    window: int = 0  # only the last ones, itself included; 0: no limit
    chunk: int = 0  # only those since the last position that this number divides; 0: no limit

    def first(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first position that the token at each of these positions reads."""
        first = np.zeros_like(positions)
        if self.window:
            first = np.maximum(first, positions - self.window + 1)
        if self.chunk:
            first = np.maximum(first, positions // self.chunk * self.chunk)
        return first

    @property
    def most(self) -> int:
        """How many tokens one reads at most; 0: no limit."""
        return min((limit for limit in (self.window, self.chunk) if limit), default=0)

    def sees(self, positions: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows, by their positions (C,), are not too early for tokens at these positions,
        (T,): (T, C).
        """
        seen: NDArray[np.bool_] = rows >= self.first(positions)[:, None]
        return seen

    def sees_all_up_to(self, position: int) -> bool:
        """Whether no token up to this position has one before it that it does not read."""
        return not (0 < self.window <= position or 0 < self.chunk <= position)


EVERYTHING: Final = Reach()


@dataclass(frozen=True, slots=True)
class RowShape:
    """What one layer stores of a token, and how many query heads read each of its KV heads."""

    kv_heads: int
    key_dim: int
    value_dim: int
    group: int = 1  # query heads per KV head (grouped-query attention)

    @property
    def numbers(self) -> int:
        """The numbers in its K and V."""
        return self.kv_heads * (self.key_dim + self.value_dim)


class MaskKind(NamedTuple):
    """Layers that are alike in this share a mask."""

    reach: Reach
    group: int
    cascades: bool


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """The attention of one layer."""

    reach: Reach = EVERYTHING
    soft_cap: float = 0.0  # scores end below this value, through tanh; 0: no cap
    # A score for each query head that takes part in its softmax, but has no value
    sinks: tuple[float, ...] = ()
    rows: RowShape | None = None  # None: as in most models, all layers alike (see KVShape)
    source: int = -1  # the earlier layer whose K and V it reads; -1: it has its own

    @property
    def is_fused(self) -> bool:
        """Whether the attention kernels of PyTorch can compute it."""
        return not (self.soft_cap or self.sinks)

    @property
    def cascades(self) -> bool:
        """Whether the kernel that returns sums of exponentials can compute it."""
        return self.is_fused and (self.rows is None or self.rows.key_dim == self.rows.value_dim)


ORDINARY: Final = LayerAttention()


@dataclass(frozen=True, slots=True)
class PlacedLayer:
    """Where a layer finds its K and V, and which of the masks is its own."""

    kind: LayerAttention
    slot: int
    mask: int

    @property
    def stores(self) -> bool:
        """Whether it has K and V of its own."""
        return self.kind.source < 0
