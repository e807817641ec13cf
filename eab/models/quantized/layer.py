"""The base class of linear layers with quantized weights."""

from abc import ABC, abstractmethod

from torch import Tensor, nn


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
