"""The base classes of linear layers with quantized weights, and the simplest of these layers:
weights and inputs in bfloat16, computed by oneDNN with float32 accumulation.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from eab.engine import compiled

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
    """One way to multiply by weights of eight or four bits. It also has a function `pack`, which
    brings integers and constants, such as scales, into the order in which it reads them.
    """

    def part(self, weight: Tensor, constants: Tensor, bias: Tensor | None) -> "Part | None":
        """These for `eab.engine.compiled.products`; None if the product is not compiled."""

    def product(self, rows: Tensor, weight: Tensor, constants: Tensor) -> Tensor:
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
