"""The shape of one KV row, what follows from the device that holds it, and the attention of each
layer, as values: caches know nothing of model families.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eab.engine import compiled


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

    def causal(self, length: int, new: int) -> NDArray[np.bool_]:
        """Which of the `length` tokens of a path its last `new` ones read, (new, length)."""
        rows = np.arange(length)
        positions = rows[length - new :]
        return (rows <= positions[:, None]) & self.sees(positions, rows)

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


_ALIGNMENT: Final = 16  # bytes, of each tensor that shares a transfer


@dataclass(frozen=True, slots=True)
class ServerBlocks:
    """How a server keeps KV rows."""

    size: int
    shared: bool  # whether texts with a common prefix share their full blocks


@dataclass(frozen=True, slots=True)
class OwnMemory:
    """The memory of a text that a model keeps in its own way (measured at loading)."""

    row_bytes: int  # for each token
    state_bytes: int  # for each text, whatever its length
    whole_prompts: bool = False  # continuing with several tokens is as slow as one by one
    # The attention layers of the model, by its own numbers, whose rows are in the tree cache
    shared_layers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class KVShape:
    """What one KV row is made of, and where it is stored."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device
    group: int = 1  # query heads per key/value head (grouped-query attention)
    # The blocks of the server that holds K and V; None if they are on this machine
    blocks: ServerBlocks | None = None
    # The memory of a model that no cache of this project can serve
    own: OwnMemory | None = None
    # The attention of each layer; empty if all layers are ordinary
    attention: tuple[LayerAttention, ...] = ()
    # Texts longer than this have different K and V, even of their first tokens (longrope); 0: none
    rope_switch: int = 0

    def layer(self, index: int) -> LayerAttention:
        """The attention of a layer."""
        return self.attention[index] if self.attention else ORDINARY

    def row(self, index: int) -> RowShape:
        """What a layer stores, or reads from the layer whose K and V it shares."""
        usual = RowShape(self.kv_heads, self.head_dim, self.head_dim, self.group)
        return self.layer(index).rows or usual

    def mask_kind(self, index: int) -> MaskKind:
        """The mask that a layer needs."""
        layer, row = self.layer(index), self.row(index)
        is_compiled = layer.returns_lse and self._has_compiled_attention(row.key_dim)
        return MaskKind(layer.reach, layer.is_fused, is_compiled)

    def _has_compiled_attention(self, head_dim: int) -> bool:
        """Whether attention over heads of this size is compiled for the processor."""
        if self.device.type != "cpu" or self.dtype != torch.float32 or not compiled.can_compile():
            return False
        from eab.engine.compiled.attention import can_attend  # needs llvmlite

        return can_attend(head_dim)

    @property
    def mask_kinds(self) -> tuple[MaskKind, ...]:
        """The masks that the layers need, each once."""
        return tuple(dict.fromkeys(map(self.mask_kind, range(self.layers))))

    @property
    def slots(self) -> tuple[int, ...]:
        """For each layer, which of the stored K and V it reads: its own, in the order of layers, or
        those of an earlier layer.
        """
        slots: list[int] = []
        own = 0
        for index in range(self.layers):
            source = self.layer(index).source
            slots.append(own if source < 0 else slots[source])
            own += source < 0
        return tuple(slots)

    @property
    def stored(self) -> tuple[RowShape, ...]:
        """What each layer with its own K and V stores."""
        return tuple(self.row(i) for i in range(self.layers) if self.layer(i).source < 0)

    @property
    def window_bytes(self) -> dict[int, int]:
        """Bytes of a row in layers that read only the last tokens, by the number of these tokens.
        Where several layers read the same K and V, the farthest reach counts.
        """
        limits: dict[int, int] = {}  # by slot; 0: none
        for index, slot in enumerate(self.slots):
            limit = self.layer(index).reach.most
            before = limits.get(slot, limit)
            limits[slot] = max(limit, before) if limit and before else 0
        sizes: dict[int, int] = {}
        for slot, row in enumerate(self.stored):
            if limits[slot]:
                size = row.numbers * self.dtype.itemsize
                sizes[limits[slot]] = sizes.get(limits[slot], 0) + size
        return sizes

    def empty_tensors(self, rows: int = 0) -> tuple[list[Tensor], list[Tensor]]:
        """K and V of any content, (G, rows, D), for each layer that has its own."""
        keys, values = (
            [
                torch.empty((row.kv_heads, rows, size), dtype=self.dtype, device=self.device)
                for row, size in zip(self.stored, sizes, strict=True)
            ]
            for sizes in (
                [row.key_dim for row in self.stored],
                [row.value_dim for row in self.stored],
            )
        )
        return keys, values

    @property
    def uses_static_buffers(self) -> bool:
        """Whether padded batches use static buffers, for CUDA graphs: on CUDA only."""
        return self.device.type == "cuda"

    @property
    def row_bytes(self) -> int:
        """Bytes of one row: K and V of one token in all layers."""
        if self.own is not None and not self.own.shared_layers:
            return self.own.row_bytes
        if not self.attention:
            return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize
        return sum(row.numbers for row in self.stored) * self.dtype.itemsize

    @property
    def state_bytes(self) -> int:
        """Bytes that each path takes, whatever the length of its text."""
        return 0 if self.own is None else self.own.state_bytes


def to_device(device: torch.device, *arrays: Sequence[int] | NDArray[Any]) -> list[Tensor]:
    """Each array as a tensor on the device, in one transfer, for which the host does not wait."""
    given = [np.ascontiguousarray(array) for array in arrays]
    if device.type == "cpu":
        return [torch.from_numpy(array) for array in given]
    sizes = [-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in given]
    pinned = torch.empty(
        sum(sizes), dtype=torch.uint8, device="cpu", pin_memory=device.type == "cuda"
    )
    for part, array in zip(pinned.split(sizes), given, strict=True):
        part[: array.nbytes].numpy()[:] = array.reshape(-1).view(np.uint8)
    parts = pinned.to(device, non_blocking=True).split(sizes)
    return [
        part[: array.nbytes].view(torch.from_numpy(array).dtype).view(array.shape)
        for part, array in zip(parts, given, strict=True)
    ]
