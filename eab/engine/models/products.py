"""Linear layers that read the same rows, as one product, however their weights are stored.

A product can prepare its rows before it multiplies them, normalize what comes out, and add it to a
residual. Compiled code does most of this in the same call.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from eab.engine.models.quantized.layer import QuantizedLinear
from eab.engine.models.weights import ReorderedLinear

if TYPE_CHECKING:
    from eab.engine.compiled.products import Part
    from eab.engine.models.decoder import Angles, Gate, Heads, Norm

_OURS: Final = (ReorderedLinear, QuantizedLinear)


class Product:
    """Calls each layer: weights that are prepacked, or quantized without a compiled product.

    Args:
        before: Prepares the rows.
        after: Normalizes the outputs.
        heads: Makes query, key and value of the outputs.
        factor: Of the outputs that are added to a residual.
    """

    def __init__(
        self,
        linears: Sequence[Any],
        before: "Norm | Gate | None" = None,
        after: "Norm | None" = None,
        heads: "Heads | None" = None,
        factor: float = 1.0,
    ) -> None:
        self.linears, self.before, self.after = linears, before, after
        self.heads, self.factor, self._prepare = heads, factor, before
        self._is_added_as_it_is = after is None and factor == 1.0
        # The number of the first output of each layer
        self.starts = [*accumulate((each.out_features for each in linears), initial=0)][:-1]

    @property
    def modules(self) -> set[nn.Module]:
        """The modules whose weights it reads."""
        norms = [self.before, self.after, *(self.heads.norms if self.heads else ())]
        return {*self.linears, *(norm.module for norm in norms if hasattr(norm, "module"))}

    def __call__(
        self, x: Tensor, residual: Tensor | None = None, angles: "Angles | None" = None
    ) -> Any:
        """x (T, in), a residual (T, out) -> (T, out); with heads, query, key and value."""
        rows = x if self._prepare is None else self._prepare(x)
        if residual is not None:
            return self._added(rows, residual)
        out = self._multiplied(rows)
        return out if self.heads is None else self.heads(out, angles)

    def _added(self, rows: Tensor, residual: Tensor) -> Tensor:
        out = self._multiplied(rows)
        out = out if self.after is None else self.after(out)
        return residual + (out if self.factor == 1.0 else out * self.factor)

    def _multiplied(self, rows: Tensor) -> Tensor:
        outputs = [linear(rows) for linear in self.linears]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)


class MergedProduct(Product):
    """Multiplies by one matrix, of which the layers' weights become parts."""

    def __init__(self, linears: Sequence[nn.Linear], *args: Any, **kwargs: Any) -> None:
        super().__init__(linears, *args, **kwargs)
        self.weight = merged(each.weight for each in linears)
        self._bias = merged(each.bias for each in linears)

    def _added(self, rows: Tensor, residual: Tensor) -> Tensor:
        if self._is_added_as_it_is and self._bias is None:
            return torch.addmm(residual, rows, self.weight.t())
        return super()._added(rows, residual)

    def _multiplied(self, rows: Tensor) -> Tensor:
        return functional.linear(rows, self.weight, self._bias)


class CompiledProduct(Product):
    """One call of compiled code (see eab.engine.compiled.products), for float32 rows."""

    def __init__(
        self, linears: Sequence[Any], parts: "Sequence[Part]", *args: Any, **kwargs: Any
    ) -> None:
        from eab.engine.compiled import products

        super().__init__(linears, *args, **kwargs)
        self.starts = [*accumulate((part.outputs for part in parts), initial=0)][:-1]
        inputs, self._width = linears[0].in_features, self.starts[-1] + linears[-1].out_features
        before = _compiled(self.before, inputs)
        self._prepare = None if before is not None else self.before
        kind, *tensors = zip(*parts, strict=True)
        part = products.Part(kind[0], *map(merged, tensors))
        self._run = products.Product(inputs, part, before)
        self._adds = self._is_added_as_it_is and part.bias is None and part.outputs == self._width

    def _added(self, rows: Tensor, residual: Tensor) -> Tensor:
        return self._run(rows, residual) if self._adds else super()._added(rows, residual)

    def _multiplied(self, rows: Tensor) -> Tensor:
        out = self._run(rows)
        return out if out.shape[1] == self._width else out[:, : self._width]


def merged(tensors: Iterable[Any]) -> Any:
    """The tensors as one, along their first dimension, of which they become parts; None if they
    are None. Tensors that are such parts already, of a model that was read before, stay.
    """
    given = [*tensors]
    if given[0] is None:
        return None
    first, sizes = given[0].detach(), [*map(len, given)]
    ends = accumulate((each.nbytes for each in given), initial=first.data_ptr())
    storages = {each.untyped_storage().data_ptr() for each in given}
    if len(storages) == 1 and all(
        each.data_ptr() == end for each, end in zip(given, ends, strict=False)
    ):
        return first.as_strided((sum(sizes), *first.shape[1:]), first.stride())
    if any(each.is_shared() for each in given if not each.is_cuda):  # CUDA's always say so
        raise ValueError("the weights are in memory that other processes share")
    together = torch.cat([each.detach() for each in given])
    for each, part in zip(given, together.split(sizes), strict=True):
        each.data = part
    return together


def _compiled(before: Any, inputs: int) -> Any:
    """What compiled code does to the rows; None if there is nothing, or PyTorch has to do it."""
    from eab.engine.compiled.llvm_code import LANES
    from eab.engine.compiled.products import Gate, Norm

    if before is None or inputs % LANES:
        return None
    if hasattr(before, "is_silu"):
        return Gate(before.start) if before.is_silu else None
    return None if before.adds_one else Norm(before.weight, before.epsilon)


def product(linears: Sequence[Any], dtype: torch.dtype, *args: Any, **kwargs: Any) -> Product:
    """The product of these layers.

    Args:
        dtype: Of the rows. The others are as of `Product`.

    Raises:
        ValueError: They are of a kind that other code made, such as an adapter.
    """
    kinds = [type(linear) for linear in linears]
    if set(kinds) == {nn.Linear} and len({linear.bias is None for linear in linears}) == 1:
        return MergedProduct(linears, *args, **kwargs)
    if not all(kind is nn.Linear or issubclass(kind, _OURS) for kind in kinds):
        raise ValueError("layers of an unknown kind")
    parts: list[Any] = [linear.part() if hasattr(linear, "part") else None for linear in linears]
    if dtype != torch.float32 or None in parts:
        return Product(linears, *args, **kwargs)
    # Each part has whole blocks of outputs; heads may have no others between them.
    has_gaps = any(
        part.outputs > one.out_features for part, one in zip(parts, linears, strict=True)
    )
    are_alike = len({(part.kind, part.bias is None) for part in parts}) == 1
    if not are_alike or (has_gaps and "heads" in kwargs):
        return Product(linears, *args, **kwargs)
    return CompiledProduct(linears, parts, *args, **kwargs)
