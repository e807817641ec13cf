"""Products of rows with stored weights, and what a decoder layer does to rows before and after.

One call computes up to three linear layers that read the same rows, side by side. Threads share the
rows that are prepared, wait for each other, and then share the blocks of outputs.
"""

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
from eab.compiled.tiles import BLOCK, share_of_thread
from eab.compiled.vectors import LANES

MOST_PARTS: Final = 3
_FLOAT_BYTES: Final = 4
_NORMALIZED, _GATED = 1, 2  # what is done to the rows, in an argument


class Weights(ABC):
    """A kind of weights: how they are stored, and the code that multiplies rows by them."""

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
    bias: Tensor | None = None  # (blocks, BLOCK) float32

    @property
    def outputs(self) -> int:
        """Including those that fill the last block."""
        return self.weight.shape[0] * BLOCK  # len() of a tensor takes six times as long


class Norm(NamedTuple):
    """RMSNorm (Zhang and Sennrich, arXiv 1910.07467) of the rows before they are multiplied."""

    weight: Tensor  # (in,) float32
    epsilon: float


class Gate(NamedTuple):
    """SwiGLU (Shazeer, arXiv 2002.05202): a row holds `inputs` gates g and, from number `start` on,
    as many values u; what is multiplied is silu(g) u.
    """

    inputs: int
    start: int


class Rotation(NamedTuple):
    """The rotary embedding (Su et al., arXiv 2104.09864) of the first heads of the outputs."""

    cos: Tensor  # (T, D) float32
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


def multiply(
    x: Tensor,
    parts: Sequence[Part],
    before: Norm | Gate | None = None,
    residual: Tensor | None = None,
    rotation: Rotation | None = None,
) -> Tensor:
    """x (T, in) float32 times the weights of each part: (T, blocks * BLOCK) float32.

    Args:
        parts: At most MOST_PARTS, of one kind.
        residual: Added to the outputs, (T, blocks * BLOCK); then no part may have a bias.
    """
    x = x if x.stride(1) == 1 else x.contiguous()
    tokens, width = x.shape
    inputs = before.inputs if isinstance(before, Gate) else width
    ends = [*accumulate(part.weight.shape[0] for part in parts)]
    outputs, kind = ends[-1] * BLOCK, parts[0].kind
    out, size = x.new_empty((tokens, outputs)), kind.rounded_bytes(inputs)
    floats = x if before is None else x.new_empty((tokens, inputs))
    rounded = torch.empty((tokens, size), dtype=torch.uint8, device="cpu")
    _check(x, parts, before, residual, rotation, inputs, outputs)
    _compiled(kind)(
        input_address(x),
        x.stride(0),
        floats.data_ptr(),
        rounded.data_ptr(),
        size,
        tokens,
        inputs,
        out.data_ptr(),
        ends[-1],
        _block_bytes(parts[0].weight),
        _block_bytes(parts[0].constants),
        *_before(before),
        *_rotation(rotation),
        outputs if residual is not None else 0,
        *_places(parts, ends, residual),
        shares=ends[-1],
    )
    return out


def _check(
    x: Tensor,
    parts: Sequence[Part],
    before: Norm | Gate | None,
    residual: Tensor | None,
    rotation: Rotation | None,
    inputs: int,
    outputs: int,
) -> None:
    """Refuse what compiled code would read or write out of bounds."""
    fits = len(parts) <= MOST_PARTS
    for part in parts:
        fits &= part.kind == parts[0].kind and part.kind.fits(part.weight, inputs)
        fits &= part.bias is None or (residual is None and part.bias.numel() == part.outputs)
    if isinstance(before, Norm):
        fits &= inputs % LANES == 0 and before.weight.numel() == inputs
    elif before is not None:
        fits &= inputs % LANES == 0 and inputs <= before.start <= x.shape[1] - inputs
    if rotation is not None:
        cos, sin, heads = rotation
        fits &= cos.shape == sin.shape and cos.shape[0] == x.shape[0]
        fits &= cos.shape[1] % (2 * LANES) == 0 and heads * cos.shape[1] <= outputs
    if not fits or (residual is not None and residual.shape != (x.shape[0], outputs)):
        raise ValueError(
            f"rows {tuple(x.shape)}, {before}, {rotation} and weights "
            f"{[tuple(part.weight.shape) for part in parts]} do not fit together"
        )


def _before(before: Norm | Gate | None) -> tuple[int, int, int]:
    if before is None:
        return 0, 0, 0
    if isinstance(before, Norm):
        return _NORMALIZED, address(before.weight), bits_of(before.epsilon)
    return _GATED, before.start, 0


def _rotation(rotation: Rotation | None) -> tuple[int, int, int, int]:
    if rotation is None:
        return 0, 0, 0, 0
    cos, sin, heads = rotation
    return address(cos), address(sin), heads, cos.shape[1]


def _block_bytes(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.stride(0) * tensor.element_size()


def _places(parts: Sequence[Part], ends: Sequence[int], residual: Tensor | None) -> list[int]:
    """For each part: its end in blocks, and the addresses of its weight, its constants and what is
    added to it, moved back by the blocks before it: block b of all is at b blocks from there.
    """
    found: list[int] = []
    for part, end in zip(parts, ends, strict=True):
        kind, weight, constants, bias = part
        before = end - weight.shape[0]
        added = bias if residual is None else residual
        added = _zeros(part.outputs) if added is None else added
        found += [
            end,
            address(weight, kind.dtype) - before * _block_bytes(weight),
            0
            if constants is None
            else address(constants, kind.dtype_of_constants) - before * _block_bytes(constants),
            address(added) - (before * BLOCK * _FLOAT_BYTES if residual is None else 0),
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
    x, stride, floats, rounded, size, count, inputs, out, blocks = given[:9]
    x, floats, rounded, out = (code.inttoptr(at, POINTER) for at in (x, floats, rounded, out))
    before, heads = given[11], given[16]
    this, of = threads(code)
    is_prepared = code.icmp_signed("!=", before, number(0))
    rounds = weights.rounded_bytes(1) > 0
    with code.if_then(ir.Constant(BIT, 1) if rounds else is_prepared):
        with counting(code, this, count, of) as row:
            source = element(code, x, FLOAT, code.mul(row, stride))
            target = element(code, floats, FLOAT, code.mul(row, inputs))
            _write_preparation(code, source, inputs, target, given[11:14])
            if rounds:
                source = code.select(is_prepared, target, source)
                target = element(code, rounded, BYTE, code.mul(row, size))
                weights.write_rounding(code, source, inputs, target, size)
        wait_for_all_threads(code)
    stride = code.select(is_prepared, inputs, stride)
    rows = Rows(rounded, size, count, inputs) if rounds else Rows(floats, stride, count, inputs)
    outputs = code.mul(blocks, number(BLOCK))
    first, end = share_of_thread(code, blocks)
    with counting(code, first, end, number(1)) as block:
        bases = _places_of_block(code, block, given[19:])
        sizes = (*given[9:11], number(BLOCK * _FLOAT_BYTES))
        weight, constants, added = (
            code.inttoptr(code.add(base, code.mul(block, size)), POINTER)
            for base, size in zip(bases, sizes, strict=True)
        )
        line = element(code, out, FLOAT, code.mul(block, number(BLOCK)))
        place = Block(weight, constants, added, given[18], line, outputs)
        weights.write_block(code, rows, place)
    with code.if_then(code.icmp_signed(">", heads, number(0))):
        wait_for_all_threads(code)
        with counting(code, this, count, of) as row:
            line = element(code, out, FLOAT, code.mul(row, outputs))
            _write_rotation_of_row(code, line, row, given[14:18])
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
