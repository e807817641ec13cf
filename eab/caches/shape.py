"""What one KV row is made of."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class KVShape:
    """What one row is made of; group: how many query heads read each KV head.

    counts_as: the kind of device whose books are kept, where the tensors are on `meta` and hold
    nothing.
    """

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device
    group: int = 1
    counts_as: str = ""

    @property
    def in_lanes(self) -> bool:
        """Whether attention may read long private parts in lanes (see eab.caches.cascade): on CPUs
        only.
        """
        return (self.counts_as or self.device.type) == "cpu"

    @property
    def in_frames(self) -> bool:
        """Whether padded passes keep their addresses, so that they can be captured (see
        eab.caches.static_buffers): on CUDA.
        """
        return self.device.type == "cuda"

    @property
    def row_bytes(self) -> int:
        """Bytes of K and V of one token over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize
