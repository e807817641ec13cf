"""The base classes of linear layers with quantized weights, and the layers whose product is one of
bfloat16: bfloat16 weights, computed by oneDNN with float32 accumulation, and NF4.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from eab.engine import compiled
from eab.weight_formats import LARGEST_INT8, NF4

if TYPE_CHECKING:
    from eab.engine.compiled.products import Part


class QuantizedLinear(nn.Module, ABC):
    """Computes what the linear layer computes, up to the rounding of its weights.

    Its tensors are buffers, so `buffers()` returns everything that it holds except the bias.
    """

    def __init__(self, linear: nn.Linear) -> None:
        """Take the shape and the bias from `linear`; a subclass stores the weight."""
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias

    @staticmethod
    @abstractmethod
    def fits(linear: nn.Linear) -> bool:
        """Whether the operators accept a weight of this shape."""

    @abstractmethod
    def _product(self, rows: Tensor) -> Tensor:
        """(R, in) -> (R, out), without the bias, in any dtype."""

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., out), in the dtype of x."""
        rows = x.reshape(-1, self.in_features)
        out = self._product(rows).to(x.dtype).view(*x.shape[:-1], self.out_features)
        return out if self.bias is None else out + self.bias

    def _store(self, **tensors: Tensor) -> None:
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor, persistent=False)


class Products(Protocol):
    """One way to multiply by weights of eight or four bits."""

    def pack(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Brings integers and constants, such as scales, into the order in which it reads them."""

    def part(self, weight: Tensor, constants: Tensor, bias: Tensor | None, /) -> "Part | None":
        """These for `eab.engine.compiled.products`; None if the product is not compiled."""

    def product(self, rows: Tensor, weight: Tensor, constants: Tensor, /) -> Tensor:
        """Round rows, (R, in) float32, and multiply them: (R, out or more)."""


class PackedLinear(QuantizedLinear):
    """A layer whose integers are packed for the product of this processor."""

    weight: Tensor
    constants: Tensor
    _filled = 0  # zeros after the inputs of a row

    @staticmethod
    @abstractmethod
    def products() -> Products:
        """The way to multiply on this processor."""

    def part(self) -> "Part | None":
        """The layer for `eab.engine.compiled.products`; None if its product is not compiled."""
        if self._filled:
            return None
        return self.products().part(self.weight, self.constants, self.bias)

    def _product(self, rows: Tensor) -> Tensor:
        if self._filled:
            rows = functional.pad(rows, (0, self._filled))
        out = self.products().product(rows.float(), self.weight, self.constants)
        return out if out.shape[1] == self.out_features else out[:, : self.out_features]


BLOCK: Final = 32  # rows per product where the kernel depends on their number


def batch_invariant(rows: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
    """Multiply so that the result of a row does not depend on the number of rows.

    oneDNN and cuBLAS choose their kernel by the number of rows, and kernels add in different
    orders. With AVX-512 but no AMX, only a single row has its own kernel, so it is padded with a
    row of zeros. Elsewhere, all products have exactly 32 rows.
    """
    if rows.device.type == "cpu" and _one_kernel_from_two_rows():
        return product(functional.pad(rows, (0, 0, 0, max(0, 2 - len(rows)))))[: len(rows)]
    filled = functional.pad(rows, (0, 0, 0, -len(rows) % BLOCK))
    return torch.cat([product(block) for block in filled.split(BLOCK)])[: len(rows)]


@cache
def _one_kernel_from_two_rows() -> bool:
    is_wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return is_wide and not compiled.has_instructions("amx_tile")


class BFloat16Linear(QuantizedLinear):
    """A linear layer with prepacked bfloat16 weights. Inputs and outputs keep their own dtype."""

    weight: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        weight = linear.weight.detach().to(torch.bfloat16)
        self._store(weight=torch.ops.mkldnn._reorder_linear_weight(weight))

    @staticmethod
    def fits(linear: nn.Linear) -> bool:
        return True

    def _product(self, rows: Tensor) -> Tensor:
        def product(block: Tensor) -> Tensor:
            out: Tensor = torch.ops.mkldnn._linear_pointwise(
                block, self.weight, None, "none", [], ""
            )
            return out

        return batch_invariant(rows.to(torch.bfloat16), product)


NF4_BLOCK: Final = 64  # weights that share a scale
SCALE_BLOCK: Final = 256  # scales that share a scale, with double quantization


def quantize_blocks(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round (out, in) weights to the nearest NF4 value, in blocks of 64 in storage order.

    Returns:
        Two weights per byte, the first in the lower four bits, (out * in / 2,) uint8; and the
        largest magnitude of each block, (blocks,) float32.
    """
    blocks = weight.float().contiguous().view(-1, NF4_BLOCK)
    scale = blocks.abs().amax(1)
    values = torch.tensor(NF4, device=weight.device)
    shares = blocks / scale.clamp(min=torch.finfo(scale.dtype).tiny)[:, None]
    codes = torch.bucketize(shares, (values[1:] + values[:-1]) / 2).to(torch.uint8).view(-1, 2)
    return codes[:, 0] | codes[:, 1] << 4, scale


class NF4Linear(QuantizedLinear):
    """Four-bit codes for 16 quantiles of a normal distribution, from Dettmers et al., QLoRA, 2023
    (arXiv 2305.14314). The weights are dequantized in every pass, and the product is computed in
    bfloat16. That saves memory, not time, and works on every device.
    """

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
        return linear.weight.numel() % NF4_BLOCK == 0

    def _store_scale(self, scale: Tensor) -> None:
        self._store(scale=scale)

    def _scale(self) -> Tensor:
        return self.scale

    def dequantized(self) -> Tensor:
        """The weight that the product uses, (out, in) bfloat16."""
        values = torch.index_select(self.pairs, 0, self.codes.int()).view(torch.bfloat16)
        weight = values.view(-1, NF4_BLOCK) * self._scale().to(torch.bfloat16)[:, None]
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
