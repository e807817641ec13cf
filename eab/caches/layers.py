"""Properties of a layer's attention, as values: caches know nothing of model families."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Reach:
    """The tokens of its own path that a token reads: all up to itself, or fewer."""

    window: int = 0  # only the last ones, including itself; 0: no limit
    chunk: int = 0  # only those since the last multiple of this number; 0: no limit

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
        """The most tokens that a token reads; 0: no limit."""
        return min((limit for limit in (self.window, self.chunk) if limit), default=0)

    def sees(self, positions: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows, given their positions, (C,), are not too early for tokens at `positions`,
        (T,); returns (T, C).
        """
        seen: NDArray[np.bool_] = rows >= self.first(positions)[:, None]
        return seen

    def sees_all_up_to(self, position: int) -> bool:
        """Whether every token up to this position reads all tokens before it."""
        return not (0 < self.window <= position or 0 < self.chunk <= position)


EVERYTHING: Final = Reach()


@dataclass(frozen=True, slots=True)
class RowShape:
    """What one layer stores per token, and how many query heads read each of its KV heads."""

    kv_heads: int
    key_dim: int
    value_dim: int
    group: int = 1  # query heads per KV head (grouped-query attention)

    @property
    def numbers(self) -> int:
        """How many numbers its K and V consist of."""
        return self.kv_heads * (self.key_dim + self.value_dim)


class MaskKind(NamedTuple):
    """Layers with equal values of these fields share a mask."""

    reach: Reach
    is_fused: bool
    is_compiled: bool = False  # whether the rows of each token are listed for compiled code


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """The attention of one layer."""

    reach: Reach = EVERYTHING
    soft_cap: float = 0.0  # tanh keeps scores below this value; 0: no cap
    # For each query head, a score that takes part in the softmax, but has no value
    sinks: tuple[float, ...] = ()
    rows: RowShape | None = None  # None: all layers alike, as in most models (see KVShape)
    source: int = -1  # the earlier layer whose K and V it reads; -1: it has its own

    @property
    def is_fused(self) -> bool:
        """Whether the attention kernels of PyTorch can compute it."""
        return not (self.soft_cap or self.sinks)

    @property
    def returns_lse(self) -> bool:
        """Whether the kernel that also returns the log-sum-exp can compute it."""
        return self.is_fused and (self.rows is None or self.rows.key_dim == self.rows.value_dim)


ORDINARY: Final = LayerAttention()


@dataclass(frozen=True, slots=True)
class PlacedLayer:
    """Where a layer finds its K and V, and which mask it uses."""

    kind: LayerAttention
    slot: int
    mask: int

    @property
    def stores(self) -> bool:
        """Whether it has K and V of its own."""
        return self.kind.source < 0
