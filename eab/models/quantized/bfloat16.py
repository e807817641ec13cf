"""Weights and input in bfloat16, by oneDNN; sums in float32."""

import torch
from torch import Tensor, nn

from eab.models.quantized.layer import QuantizedLinear


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
        out: Tensor = torch.ops.mkldnn._linear_pointwise(
            rows.to(torch.bfloat16), self.weight, None, "none", [], ""
        )
        return out
