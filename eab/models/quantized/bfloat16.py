"""Weights and input in bfloat16, by oneDNN; sums in float32."""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from eab.models.quantized.layer import QuantizedLinear

ROWS: Final = 32  # per product


def in_blocks(rows: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
    """Multiply in blocks of exactly 32 rows; the last one is filled up with zeros.

    oneDNN chooses its kernel by the number of rows, and its kernels add up in different orders.
    With AMX the last bit of a row would depend on how many rows stand beside it, were the products
    not all of one shape.

    Args:
        rows: (R, in).
        product: (32, in) -> (32, out).

    Returns:
        (R, out).
    """
    filled = functional.pad(rows, (0, 0, 0, -len(rows) % ROWS))
    return torch.cat([product(block) for block in filled.split(ROWS)])[: len(rows)]


class BFloat16Linear(QuantizedLinear):
    """A linear layer with prepacked bfloat16 weights. What surrounds it keeps its number format."""

    weight: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        weight = linear.weight.detach().to(torch.bfloat16)
        self._store(weight=torch.ops.mkldnn._reorder_linear_weight(weight))

    @staticmethod
    def fits(linear: nn.Linear) -> bool:
        """Every shape."""
        return True

    def _product(self, rows: Tensor) -> Tensor:
        def product(block: Tensor) -> Tensor:
            out: Tensor = torch.ops.mkldnn._linear_pointwise(
                block, self.weight, None, "none", [], ""
            )
            return out

        return in_blocks(rows.to(torch.bfloat16), product)
