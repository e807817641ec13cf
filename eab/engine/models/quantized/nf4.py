"""NF4: four-bit codes for 16 quantiles of a normal distribution.

From Dettmers et al., QLoRA, 2023 (arXiv 2305.14314). The weights are dequantized in every pass.
That saves memory, not time, and works on every device.
"""

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from eab.engine.models.quantized.layer import QuantizedLinear, batch_invariant
from eab.weight_formats import LARGEST_INT8, NF4

BLOCK: Final = 64  # weights that share a scale
SCALE_BLOCK: Final = 256  # scales that share a scale, with double quantization


def quantize_blocks(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round (out, in) weights to the nearest NF4 value, in blocks of 64 in storage order.

    Returns:
        Two weights per byte, the first in the lower four bits, (out * in / 2,) uint8; and the
        largest magnitude of each block, (blocks,) float32.
    """
    blocks = weight.float().contiguous().view(-1, BLOCK)
    scale = blocks.abs().amax(1)
    values = torch.tensor(NF4, device=weight.device)
    shares = blocks / scale.clamp(min=torch.finfo(scale.dtype).tiny)[:, None]
    codes = torch.bucketize(shares, (values[1:] + values[:-1]) / 2).to(torch.uint8).view(-1, 2)
    return codes[:, 0] | codes[:, 1] << 4, scale


class NF4Linear(QuantizedLinear):
    """Four-bit weights from a table; the product is computed in bfloat16."""

    codes: Tensor  # two weights per byte
    scale: Tensor  # of each block
    pairs: Tensor  # (256,) int32: the two bfloat16 values of a byte

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        codes, scale = quantize_blocks(linear.weight.detach())
        values = torch.tensor(NF4, dtype=torch.bfloat16, device=codes.device)
        byte = torch.arange(256, device=codes.device)
        pairs = torch.stack([values[byte % 16], values[byte // 16]], -1).view(torch.int32)[:, 0]
        self._store(codes=codes, pairs=pairs)
        self._store_scale(scale)

    @staticmethod
    def fits(linear: nn.Linear) -> bool:
        """Whether the weights form whole blocks, and so whole bytes of two weights."""
        return linear.weight.numel() % BLOCK == 0

    def _store_scale(self, scale: Tensor) -> None:
        self._store(scale=scale)

    def _scale(self) -> Tensor:
        return self.scale

    def dequantized(self) -> Tensor:
        """The weight that the product uses, (out, in) bfloat16."""
        values = torch.index_select(self.pairs, 0, self.codes.int()).view(torch.bfloat16)
        weight = values.view(-1, BLOCK) * self._scale().to(torch.bfloat16)[:, None]
        return weight.view(self.out_features, self.in_features)

    def _product(self, rows: Tensor) -> Tensor:
        weight = self.dequantized()
        return batch_invariant(
            rows.to(torch.bfloat16), lambda some: functional.linear(some, weight)
        )


class NF4DoubleQuantLinear(NF4Linear):
    """NF4 with eight-bit scales, stored as differences from their mean in blocks of 256."""

    scale_integers: Tensor  # (scale blocks, 256) int8
    scale_steps: Tensor  # (scale blocks, 1)
    scale_mean: Tensor  # ()

    def _store_scale(self, scale: Tensor) -> None:
        self._scales, mean = len(scale), scale.mean()
        distances = functional.pad(scale - mean, (0, -len(scale) % SCALE_BLOCK))
        blocks = distances.view(-1, SCALE_BLOCK)
        steps = blocks.abs().amax(1, keepdim=True).clamp(min=1e-12) / LARGEST_INT8
        self._store(
            scale_integers=(blocks / steps).round().to(torch.int8),
            scale_steps=steps,
            scale_mean=mean,
        )

    def _scale(self) -> Tensor:
        scale = self.scale_integers * self.scale_steps + self.scale_mean
        return scale.flatten()[: self._scales]
