"""Products of rows with stored weights, and what a decoder layer does to rows before and after.

One call computes up to three linear layers that read the same rows, side by side. Threads share the
rows that are prepared, wait for each other, and then share the blocks of outputs.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any, Final, NamedTuple

import torch
from llvmlite import ir
from torch import Tensor

from eab.compiled.llvm_code import (
    BIT,
    BYTE,
    FLOAT,
    POINTER,
    VOID,
    WORK,
    Parallel,
    address,
    as_float,
    bits_of,
    call,
    counting,
    element,
    function,
    input_address,
    integers,
    number,
    threads,
    wait_for_all_threads,
)
from eab.compiled.row_functions import write_gate, write_norm, write_rotation
from eab.compiled.tiles import Tile, share
from eab.compiled.vectors import LANES

MOST_PARTS: Final = 3
_FLOAT_BYTES: Final = 4
_MOST_KEPT: Final = 2**20  # bytes
_NORMALIZED, _GATED = 1, 2  # what is done to the rows, in an argument


class Weights(ABC):
    """A kind of weights: how they are stored, and the code that multiplies rows by them."""

    tile: Tile
    dtype: torch.dtype
    dtype_of_constants: torch.dtype = torch.float32

    @abstractmethod
    def fits(self, weight: Tensor, inputs: int) -> bool:
        """Whether a stored weight has this many inputs."""

    @abstractmethod
    def rounded_bytes(self, inputs: int) -> int:
        """Bytes of a rounded row; 0 if rows are not rounded."""

    @abstractmethod
    def write_functions(self, module: Any) -> None:
        """Write what the other methods call."""

    @abstractmethod
    def write_rounding(self, code: Any, row: Any, inputs: Any, rounded: Any, size: Any) -> None:
        """Round a row to `size` bytes, if rows are rounded."""

    @abstractmethod
    def write_block(self, code: Any, rows: "Rows", block: "Block") -> None:
        """Multiply the rows by the weights of a block."""


class Part(NamedTuple):
    """A linear layer as its kind of weights stores it."""

    kind: Weights
    weight: Tensor  # (blocks, ...)
    constants: Tensor | None = None  # (blocks, ...), such as scales, if the kind has any
    bias: Tensor | None = None  # (blocks, outputs of a block) float32

    @property
    def outputs(self) -> int:
        """Including those that fill the last block."""
        return (
            self.weight.shape[0] * self.kind.tile.outputs
        )  # len() of a tensor takes six times as long


class Norm(NamedTuple):
    """RMSNorm (Zhang and Sennrich, arXiv 1910.07467) of the rows before they are multiplied."""

    weight: Tensor  # (in,) float32
    epsilon: float


class Gate(NamedTuple):
    """SwiGLU (Shazeer, arXiv 2002.05202): a row holds a gate g for each input and, from number
    `start` on, a value u for each; what is multiplied is silu(g) u.
    """

    start: int


class Rotation(NamedTuple):
    """The rotary embedding (Su et al., arXiv 2104.09864) of the first heads of the outputs."""

    cos: Tensor  # (T, D) or (1, T, D) float32
    sin: Tensor
    heads: int


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows that tiles multiply, as values of the code."""

    first: Any
    stride: Any  # in floats; in bytes if the rows are rounded
    count: Any
    inputs: Any


@dataclass(frozen=True, slots=True)
class Block:
    """A block of outputs and what makes it, as values of the code: addresses, strides in floats."""

    weight: Any
    constants: Any
    added: Any  # a bias or the residual
    added_stride: Any
    out: Any
    out_stride: Any


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
        """Memory of at least so many bytes, until the next call."""
        if size <= _MOST_KEPT:
            return self._kept
        return torch.empty(size, dtype=torch.uint8, device="cpu")


_SCRATCH: Final = _Scratch()


class Product:
    """Linear layers that read the same rows, computed side by side.

    What does not change from call to call is looked up only once: in a decode step this is half of
    the time that Python takes. The tensors of the parts must not move.

    Args:
        inputs: Of each layer.
        parts: At most MOST_PARTS, of one kind.
        before: What is done to the rows first.
    """

    def __init__(
        self, inputs: int, parts: Sequence[Part], before: Norm | Gate | None = None
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
        self._prepared_bytes = 0 if before is None else inputs * _FLOAT_BYTES
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

    def __call__(
        self, x: Tensor, residual: Tensor | None = None, rotation: Rotation | None = None
    ) -> Tensor:
        """x (T, in) float32 times the weights of each part: (T, outputs) float32.

        Args:
            x: With a gate, (T, 2 * in) or more.
            residual: Added to the outputs, (T, outputs); then no part may have a bias.
            rotation: Of the first heads of the outputs.
        """
        x = x if x.stride(1) == 1 else x.contiguous()
        tokens = x.shape[0]
        self._check(x, residual, rotation)
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
            *_rotation(rotation),
            *self._fixed,
            shares=self._blocks,
        )
        return out

    def _check(self, x: Tensor, residual: Tensor | None, rotation: Rotation | None) -> None:
        """Refuse what compiled code would read or write out of bounds."""
        tokens, width = x.shape
        if isinstance(self._before, Gate):
            fits = self._inputs <= self._before.start <= width - self._inputs
        else:
            fits = width == self._inputs
        if residual is not None:
            fits &= residual.shape == (tokens, self.outputs) and not self._has_bias
        if rotation is not None:
            cos, sin, heads = rotation
            size = cos.shape[-1]
            fits &= cos.shape == sin.shape and cos.numel() == tokens * size
            fits &= size % (2 * LANES) == 0 and heads * size <= self.outputs
        if not fits:
            added = None if residual is None else tuple(residual.shape)
            raise ValueError(
                f"rows {tuple(x.shape)}, a residual {added}, {rotation}, {self._before} and "
                f"weights {self._shapes} do not fit together"
            )

    @property
    def _shapes(self) -> list[tuple[int, ...]]:
        return [tuple(part.weight.shape) for part in self._parts]


def _preparation(before: Norm | Gate | None) -> tuple[int, int, int]:
    if before is None:
        return 0, 0, 0
    if isinstance(before, Norm):
        return _NORMALIZED, address(before.weight), bits_of(before.epsilon)
    return _GATED, before.start, 0


def _rotation(rotation: Rotation | None) -> tuple[int, int, int, int]:
    if rotation is None:
        return 0, 0, 0, 0
    cos, sin, heads = rotation
    return address(cos), address(sin), heads, cos.shape[-1]


def _block_bytes(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.stride(0) * tensor.element_size()


def _places(parts: Sequence[Part], ends: Sequence[int]) -> list[int]:
    """For each part: its end in blocks, and the addresses of its weight, its constants and its
    bias, moved back by the blocks before it: block b of all is at b blocks from there.
    """
    found: list[int] = []
    for part, end in zip(parts, ends, strict=True):
        kind, weight, constants, bias = part
        before = end - weight.shape[0]
        added = _zeros(part.outputs) if bias is None else bias
        found += [
            end,
            address(weight, kind.dtype) - before * _block_bytes(weight),
            0
            if constants is None
            else address(constants, kind.dtype_of_constants) - before * _block_bytes(constants),
            address(added) - before * kind.tile.outputs * _FLOAT_BYTES,
        ]
    return found + found[-4:] * (MOST_PARTS - len(parts))


@cache
def _zeros(outputs: int) -> Tensor:
    return torch.zeros(outputs, dtype=torch.float32, device="cpu")


@cache
def _compiled(weights: Weights) -> Parallel:
    module = ir.Module()
    weights.write_functions(module)
    write_norm(module)
    write_gate(module)
    write_rotation(module)
    _write_work(module, weights)
    return Parallel(module)


def _write_work(module: Any, weights: Weights) -> None:
    code, [arguments] = function(module, WORK, [POINTER])
    given = integers(code, arguments, 19 + 4 * MOST_PARTS)
    x, stride, floats, rounded, count, out, residual, *rotation = given[:11]
    size, inputs, blocks, *block_bytes = given[11:16]
    preparation, places = given[16:19], given[19:]
    x, floats, rounded, out = (code.inttoptr(at, POINTER) for at in (x, floats, rounded, out))
    this, of = threads(code)
    is_prepared = code.icmp_signed("!=", preparation[0], number(0))
    rounds = weights.rounded_bytes(1) > 0
    with code.if_then(ir.Constant(BIT, 1) if rounds else is_prepared):
        with counting(code, this, count, of) as row:
            source = element(code, x, FLOAT, code.mul(row, stride))
            target = element(code, floats, FLOAT, code.mul(row, inputs))
            _write_preparation(code, source, inputs, target, preparation)
            if rounds:
                source = code.select(is_prepared, target, source)
                target = element(code, rounded, BYTE, code.mul(row, size))
                weights.write_rounding(code, source, inputs, target, size)
        wait_for_all_threads(code)
    stride = code.select(is_prepared, inputs, stride)
    rows = Rows(rounded, size, count, inputs) if rounds else Rows(floats, stride, count, inputs)
    width = number(weights.tile.outputs)
    outputs = code.mul(blocks, width)
    is_residual = code.icmp_signed("!=", residual, number(0))
    added_stride = code.select(is_residual, outputs, number(0))
    first, end = share(code, blocks, this, of)
    with counting(code, first, end, number(1)) as block:
        *bases, bias = _places_of_block(code, block, places)
        bases.append(code.select(is_residual, residual, bias))
        sizes = (*block_bytes, number(weights.tile.outputs * _FLOAT_BYTES))
        weight, constants, added = (
            code.inttoptr(code.add(base, code.mul(block, bytes_of_block)), POINTER)
            for base, bytes_of_block in zip(bases, sizes, strict=True)
        )
        line = element(code, out, FLOAT, code.mul(block, width))
        place = Block(weight, constants, added, added_stride, line, outputs)
        weights.write_block(code, rows, place)
    with code.if_then(code.icmp_signed(">", rotation[2], number(0))):
        wait_for_all_threads(code)
        with counting(code, this, count, of) as row:
            line = element(code, out, FLOAT, code.mul(row, outputs))
            _write_rotation_of_row(code, line, row, rotation)
    code.ret_void()


def _write_preparation(
    code: Any, row: Any, inputs: Any, target: Any, before: Sequence[Any]
) -> None:
    kind, place, epsilon = before
    with code.if_then(code.icmp_signed("==", kind, number(_NORMALIZED))):
        weight = code.inttoptr(place, POINTER)
        call(code, "normalize", VOID, [row, inputs, weight, as_float(code, epsilon), target])
    with code.if_then(code.icmp_signed("==", kind, number(_GATED))):
        call(code, "gate", VOID, [row, element(code, row, FLOAT, place), inputs, target])


def _write_rotation_of_row(code: Any, line: Any, row: Any, rotation: Sequence[Any]) -> None:
    cos, sin, heads, size = rotation
    angles = (
        element(code, code.inttoptr(at, POINTER), FLOAT, code.mul(row, size)) for at in (cos, sin)
    )
    call(code, "rotate", VOID, [line, heads, size, *angles])


def _places_of_block(code: Any, block: Any, places: Sequence[Any]) -> list[Any]:
    """Where the weight, the constants and what is added begin, of the part that has this block."""
    found = [*places[-3:]]
    for part in reversed(range(MOST_PARTS - 1)):
        end, *own = places[4 * part : 4 * part + 4]
        is_here = code.icmp_signed("<", block, end)
        found = [code.select(is_here, mine, other) for mine, other in zip(own, found, strict=True)]
    return found
