"""Products of rows with stored weights, and what a decoder layer does to rows before and after.

One call computes up to three linear layers that read the same rows, side by side.
"""

import threading
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Final, NamedTuple

import torch
from llvmlite import ir
from torch import Tensor

from eab.compiled.llvm_code import Parallel, address, bits_of, input_address
from eab.compiled.product_code import (
    FLOAT_BYTES,
    GATED,
    MOST_PARTS,
    NORMALIZED,
    Weights,
    write_product,
)
from eab.compiled.vectors import LANES

_MOST_KEPT: Final = 2**20  # bytes


class Part(NamedTuple):
    """A linear layer as its kind of weights stores it."""

    kind: Weights
    weight: Tensor  # (blocks, ...)
    constants: Tensor | None = None  # (blocks, ...), such as scales, if the kind has any
    bias: Tensor | None = None  # (blocks, outputs of a block) float32

    @property
    def outputs(self) -> int:
        """Including those that fill the last block."""
        return len(self.weight) * self.kind.tile.outputs


class Norm(NamedTuple):
    """RMSNorm (Zhang and Sennrich, arXiv 1910.07467) of the rows before they are multiplied."""

    weight: Tensor  # (in,) float32
    epsilon: float


class Gate(NamedTuple):
    """SwiGLU (Shazeer, arXiv 2002.05202): a row holds a gate g for each input and, from number
    `start` on, a value u for each; what is multiplied is silu(g) u.
    """

    start: int


def compile_now(weights: Weights) -> None:
    """Compile products with this kind of weights, so that what prevents it is known."""
    _compiled(weights)


class _Scratch(threading.local):
    """Memory for prepared rows, kept for each thread of Python: in a decode step, to allocate it
    would take longer than to use it.
    """

    def __init__(self) -> None:
        self._kept = torch.empty(_MOST_KEPT, dtype=torch.uint8, device="cpu")

    def of(self, size: int) -> Tensor:
        """Memory of at least this many bytes; the next call may return the same."""
        if size <= _MOST_KEPT:
            return self._kept
        return torch.empty(size, dtype=torch.uint8, device="cpu")


_SCRATCH: Final = _Scratch()


class Product:
    """Linear layers that read the same rows, computed side by side.

    What does not change from call to call is looked up only once. The tensors of the parts must not
    move.

    Args:
        inputs: Of each layer.
        parts: At most MOST_PARTS, of one kind.
        before: What is done to the rows first.
    """

    def __init__(
        self,
        inputs: int,
        parts: Sequence[Part],
        before: Norm | Gate | None = None,
    ) -> None:
        self._inputs, self._parts, self._before = inputs, parts, before
        kind, ends = parts[0].kind, [*accumulate(part.weight.shape[0] for part in parts)]
        self._blocks, self.outputs = ends[-1], ends[-1] * kind.tile.outputs
        fits = len(parts) <= MOST_PARTS
        for part in parts:
            fits &= part.kind == kind and part.kind.fits(part.weight, inputs)
            fits &= part.bias is None or part.bias.numel() == part.outputs
        fits &= before is None or inputs % LANES == 0
        fits &= not isinstance(before, Norm) or before.weight.numel() == inputs
        if not fits:
            raise ValueError(
                f"{inputs} inputs, {before} and weights {self._shapes} do not fit together"
            )
        self._has_bias = any(part.bias is not None for part in parts)
        self._rounded_bytes = kind.rounded_bytes(inputs)
        self._prepared_bytes = 0 if before is None else inputs * FLOAT_BYTES
        self._fixed = (
            self._rounded_bytes,
            inputs,
            self._blocks,
            _block_bytes(parts[0].weight),
            _block_bytes(parts[0].constants),
            *_preparation(before),
            *_places(parts, ends),
        )
        self._run = _compiled(kind)

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """x (T, in) float32 times the weights of each part: (T, outputs) float32.

        Args:
            x: With a gate, (T, 2 * in) or more.
            residual: Added to the outputs, (T, outputs); then no part may have a bias.
        """
        x = x if x.stride(1) == 1 else x.contiguous()
        tokens = x.shape[0]
        self._check(x, residual)
        out = x.new_empty((tokens, self.outputs))
        rounded_bytes = tokens * self._rounded_bytes
        scratch = _SCRATCH.of(rounded_bytes + self._prepared_bytes * tokens)
        rounded = scratch.data_ptr()
        place = input_address(x)
        self._run(
            place,
            x.stride(0),
            rounded + rounded_bytes if self._prepared_bytes else place,
            rounded,
            tokens,
            out.data_ptr(),
            0 if residual is None else address(residual),
            *self._fixed,
            shares=self._blocks,
        )
        return out

    def _check(self, x: Tensor, residual: Tensor | None) -> None:
        """Refuse what compiled code would read or write out of bounds."""
        tokens, width = x.shape
        if isinstance(self._before, Gate):
            fits = self._inputs <= self._before.start <= width - self._inputs
        else:
            fits = width == self._inputs
        if residual is not None:
            fits &= residual.shape == (tokens, self.outputs) and not self._has_bias
        if not fits:
            added = None if residual is None else tuple(residual.shape)
            raise ValueError(
                f"rows {tuple(x.shape)}, a residual {added}, {self._before} and "
                f"weights {self._shapes} do not fit together"
            )

    @property
    def _shapes(self) -> list[tuple[int, ...]]:
        return [tuple(part.weight.shape) for part in self._parts]


def _preparation(before: Norm | Gate | None) -> tuple[int, int, int]:
    if before is None:
        return 0, 0, 0
    if isinstance(before, Norm):
        return NORMALIZED, address(before.weight), bits_of(before.epsilon)
    return GATED, before.start, 0


def _block_bytes(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.stride(0) * tensor.element_size()


def _places(parts: Sequence[Part], ends: Sequence[int]) -> list[int]:
    """For each part: its end in blocks, and the addresses of its weight, its constants and its
    bias, moved back by the blocks before it: block b of all is at b blocks from there.
    """
    places: list[int] = []
    for part, end in zip(parts, ends, strict=True):
        kind, weight, constants, bias = part
        before = end - weight.shape[0]
        added = _zeros(part.outputs) if bias is None else bias
        places += [
            end,
            address(weight, kind.dtype) - before * _block_bytes(weight),
            0
            if constants is None
            else address(constants, kind.dtype_of_constants) - before * _block_bytes(constants),
            address(added) - before * kind.tile.outputs * FLOAT_BYTES,
        ]
    return places + places[-4:] * (MOST_PARTS - len(parts))


@cache
def _zeros(outputs: int) -> Tensor:
    return torch.zeros(outputs, dtype=torch.float32, device="cpu")


@cache
def _compiled(weights: Weights) -> Parallel:
    module = ir.Module()
    write_product(module, weights)
    return Parallel(module)
