"""The shape of one KV row, and what follows from the device that holds it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eab.caches.layers import EVERYTHING, ORDINARY, LayerAttention, Reach


@dataclass(frozen=True, slots=True)
class ServerBlocks:
    """How a server keeps KV rows."""

    size: int
    shared: bool  # whether texts that begin alike share their full blocks


@dataclass(frozen=True, slots=True)
class KVShape:
    """What one KV row is made of, and where it is stored."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device
    group: int = 1  # query heads per key/value head (grouped-query attention)
    # For tensors on the `meta` device, which hold no data: the type of the device whose row
    # allocation is reproduced
    simulated_device: str = ""
    # The blocks of the server that holds K and V; None if they are on this machine
    blocks: ServerBlocks | None = None
    # What the attention of each layer is like; empty if all are ordinary
    attention: tuple[LayerAttention, ...] = ()

    def layer(self, index: int) -> LayerAttention:
        """The attention of a layer."""
        return self.attention[index] if self.attention else ORDINARY

    @property
    def reaches(self) -> tuple[Reach, ...]:
        """The reaches of the layers, each once."""
        return tuple(dict.fromkeys(layer.reach for layer in self.attention)) or (EVERYTHING,)

    @property
    def uses_cascade_attention(self) -> bool:
        """Whether long private suffixes may be read in blocks (see `cascade`): on CPUs only, with
        attention that is fused.
        """
        fused = all(layer.is_fused for layer in self.attention)
        return fused and (self.simulated_device or self.device.type) == "cpu"

    @property
    def uses_static_buffers(self) -> bool:
        """Whether padded batches use static buffers, for CUDA graphs: on CUDA only."""
        return self.device.type == "cuda"

    @property
    def row_bytes(self) -> int:
        """Bytes of one row: K and V of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize


def to_device(
    device: torch.device, *numbers: Sequence[int] | NDArray[np.int64]
) -> tuple[Tensor, ...]:
    """Each list as a tensor, (n,) int64; in one transfer, because each one makes the host wait."""
    together = torch.from_numpy(np.concatenate(numbers, dtype=np.int64)).to(device)
    parts: tuple[Tensor, ...] = together.split([len(array) for array in numbers])
    return parts
