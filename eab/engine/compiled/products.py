"""Products of rows with stored weights, and what a decoder layer does to rows before and after."""

import threading
from functools import cache
from typing import Final, NamedTuple

import torch
from llvmlite import ir
from torch import Tensor

from eab.engine.compiled.llvm_code import Parallel, address, bits_of, input_address
from eab.engine.compiled.product_code import FLOAT_BYTES, GATED, NORMALIZED, write_product
from eab.engine.compiled.tiles import Weights
from eab.engine.compiled.vectors import LANES

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
    """A linear layer, with what does not change from call to call looked up only once. The tensors
    of the part must not move.

    Args:
        before: What is done to the rows first.
    """

    def __init__(self, inputs: int, part: Part, before: Norm | Gate | None = None) -> None:
        self._inputs, self._part, self._before = inputs, part, before
        kind, weight, constants, bias = part
        self._blocks, self.outputs = len(weight), part.outputs
        fits = kind.fits(weight, inputs) and (bias is None or bias.numel() == part.outputs)
        fits &= before is None or inputs % LANES == 0
        fits &= not isinstance(before, Norm) or before.weight.numel() == inputs
        if not fits:
            shape = tuple(weight.shape)
            raise ValueError(f"{inputs} inputs, {before} and weights {shape} do not fit together")
        self._rounded_bytes = kind.rounded_bytes(inputs)
        self._prepared_bytes = 0 if before is None else inputs * FLOAT_BYTES
        self._fixed = (
            self._rounded_bytes,
            inputs,
            kind.steps(inputs),
            self._blocks,
            _block_bytes(weight),
            _block_bytes(constants),
            *_preparation(before),
            address(weight, kind.dtype),
            0 if constants is None else address(constants, kind.dtype_of_constants),
            address(_zeros(part.outputs) if bias is None else bias),
        )
        self._run = _compiled(kind)

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """x (T, in) float32 times the weights: (T, outputs) float32.

        Args:
            x: With a gate, (T, 2 * in) or more.
            residual: Added to the outputs, (T, outputs); then the part may have no bias.
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
            fits &= residual.shape == (tokens, self.outputs) and self._part.bias is None
        if not fits:
            added = None if residual is None else tuple(residual.shape)
            raise ValueError(
                f"rows {tuple(x.shape)}, a residual {added}, {self._before} and "
                f"weights {tuple(self._part.weight.shape)} do not fit together"
            )


def multiplied(x: Tensor, part: Part) -> Tensor:
    """x (..., in) float32 times the weights of a part: (..., outputs) float32."""
    rows = x.reshape(-1, x.shape[-1])
    out = Product(rows.shape[1], part)(rows)
    return out.view(*x.shape[:-1], out.shape[1])


def _preparation(before: Norm | Gate | None) -> tuple[int, int, int]:
    if before is None:
        return 0, 0, 0
    if isinstance(before, Norm):
        return NORMALIZED, address(before.weight), bits_of(before.epsilon)
    return GATED, before.start, 0


def _block_bytes(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.stride(0) * tensor.element_size()


@cache
def _zeros(outputs: int) -> Tensor:
    return torch.zeros(outputs, dtype=torch.float32, device="cpu")


@cache
def _compiled(weights: Weights) -> Parallel:
    module = ir.Module()
    write_product(module, weights)
    return Parallel(module)
