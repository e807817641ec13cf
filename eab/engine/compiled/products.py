"""Products of rows with stored weights, and what a decoder layer does to rows before and after.

Rows are prepared, and multiplied by blocks of weights. Threads share the rows that are prepared,
wait for each other, and share the blocks of outputs. What decoder layers do to single rows expects
whole vectors of numbers.
"""

import threading
from functools import cache
from typing import Any, Final, NamedTuple

import torch
from llvmlite import ir
from torch import Tensor

from eab.engine.compiled.llvm_code import (
    BIT,
    BYTE,
    FLOAT,
    FLOATS,
    INT64,
    LANES,
    POINTER,
    VOID,
    WORK,
    Parallel,
    add,
    address,
    as_float,
    bits_of,
    call,
    constant,
    counting,
    element,
    exponential,
    function,
    input_address,
    integers,
    load,
    multiply_add,
    number,
    over_lanes,
    repeated,
    store,
    threads,
    variable,
    wait_for_all_threads,
)
from eab.engine.compiled.tiles import Block, Rows, Weights, share, write_block, write_tile


def write_norm(module: Any) -> None:
    """`normalize`: each number over the root of the mean square, times its weight."""
    code, given = function(module, "normalize", [POINTER, INT64, POINTER, FLOAT, POINTER])
    row, inputs, weight, epsilon, out = given
    total = variable(code, constant(0.0))
    with counting(code, number(0), inputs, number(LANES)) as index:
        value = load(code, row, index)
        code.store(multiply_add(code, value, value, code.load(total, typ=FLOATS)), total)
    squares = over_lanes(code, code.load(total, typ=FLOATS), add)
    mean = code.fadd(code.fdiv(squares, code.sitofp(inputs, FLOAT)), epsilon)
    root = call(code, "llvm.sqrt.f32", FLOAT, [mean])
    factor = repeated(code, code.fdiv(ir.Constant(FLOAT, 1.0), root))
    with counting(code, number(0), inputs, number(LANES)) as index:
        value = code.fmul(load(code, row, index), factor)
        store(code, code.fmul(value, load(code, weight, index)), out, index)
    code.ret_void()


def write_gate(module: Any) -> None:
    """`gate`: silu(g) u, where silu(g) = g / (1 + e^-g)."""
    code, (gates, values, inputs, out) = function(
        module, "gate", [POINTER, POINTER, INT64, POINTER]
    )
    with counting(code, number(0), inputs, number(LANES)) as index:
        gate = load(code, gates, index)
        size = call(code, f"llvm.fabs.v{LANES}f32", FLOATS, [gate])
        small = exponential(code, code.fneg(size))
        is_positive = code.fcmp_ordered(">", gate, constant(0.0))
        above = code.select(is_positive, constant(1.0), small)
        share = code.fdiv(above, code.fadd(constant(1.0), small))
        value = code.fmul(code.fmul(gate, share), load(code, values, index))
        store(code, value, out, index)
    code.ret_void()


FLOAT_BYTES: Final = 4
NORMALIZED, GATED = 1, 2  # how rows are prepared


class Arguments(NamedTuple):
    """The 64-bit integers that the code is given; 0 for what is not there. The first differ from
    call to call.
    """

    x: Any
    stride: Any  # in floats
    floats: Any  # where prepared rows are written; x if rows are not prepared
    rounded: Any
    count: Any
    out: Any
    residual: Any

    rounded_bytes: Any
    inputs: Any
    steps: Any  # in which a tile reads them
    blocks: Any
    weight_bytes: Any  # of a block
    constant_bytes: Any
    preparation: Any
    prepared_by: Any  # the weight of a norm, or where the values begin that are gated
    epsilon: Any
    weight: Any
    constants: Any
    bias: Any


def write_product(module: Any, weights: Weights) -> None:
    """Write WORK, with `Arguments`."""
    if weights.rounded_bytes(1):
        weights.write_rounding(module)
    for rows in range(1, weights.tile.rows + 1):
        write_tile(module, weights, rows)
    write_norm(module)
    write_gate(module)
    code, [array] = function(module, WORK, [POINTER])
    given = Arguments(*integers(code, array, len(Arguments._fields)))
    _write_blocks(code, given, _write_preparation(code, given, weights), weights)
    code.ret_void()


def _write_preparation(code: Any, given: Arguments, weights: Weights) -> Rows:
    """Prepare and round rows, each if it is asked for; returns the rows to multiply."""
    places = (given.x, given.floats, given.rounded)
    x, floats, rounded = (code.inttoptr(at, POINTER) for at in places)
    is_prepared = code.icmp_signed("!=", given.preparation, number(0))
    rounds = weights.rounded_bytes(1) > 0
    this, of = threads(code)
    with code.if_then(ir.Constant(BIT, 1) if rounds else is_prepared):
        with counting(code, this, given.count, of) as row:
            source = element(code, x, FLOAT, code.mul(row, given.stride))
            target = element(code, floats, FLOAT, code.mul(row, given.inputs))
            _write_row(code, given, source, target)
            if rounds:
                source = code.select(is_prepared, target, source)
                target = element(code, rounded, BYTE, code.mul(row, given.rounded_bytes))
                operands = [source, given.inputs, target, given.steps]
                call(code, "round_row", VOID, operands)
        wait_for_all_threads(code)
    if rounds:
        return Rows(rounded, given.rounded_bytes, given.count, given.steps)
    stride = code.select(is_prepared, given.inputs, given.stride)
    return Rows(floats, code.mul(stride, number(FLOAT_BYTES)), given.count, given.steps)


def _write_row(code: Any, given: Arguments, row: Any, target: Any) -> None:
    with code.if_then(code.icmp_signed("==", given.preparation, number(NORMALIZED))):
        weight = code.inttoptr(given.prepared_by, POINTER)
        epsilon = as_float(code, given.epsilon)
        call(code, "normalize", VOID, [row, given.inputs, weight, epsilon, target])
    with code.if_then(code.icmp_signed("==", given.preparation, number(GATED))):
        values = element(code, row, FLOAT, given.prepared_by)
        call(code, "gate", VOID, [row, values, given.inputs, target])


def _write_blocks(code: Any, given: Arguments, rows: Rows, weights: Weights) -> None:
    """Multiply the rows by this thread's share of the blocks."""
    width = number(weights.tile.outputs)
    outputs = code.mul(given.blocks, width)
    is_residual = code.icmp_signed("!=", given.residual, number(0))
    added_stride = code.select(is_residual, outputs, number(0))
    out = code.inttoptr(given.out, POINTER)
    first, end = share(code, given.blocks, *threads(code))
    with counting(code, first, end, number(1)) as block:
        added_to = code.select(is_residual, given.residual, given.bias)
        bases = given.weight, given.constants, added_to
        sizes = given.weight_bytes, given.constant_bytes, code.mul(width, number(FLOAT_BYTES))
        weight, constants, added = (
            code.inttoptr(code.add(base, code.mul(block, size)), POINTER)
            for base, size in zip(bases, sizes, strict=True)
        )
        line = element(code, out, FLOAT, code.mul(block, width))
        made = Block(weight, constants, added, added_stride, line, outputs)
        write_block(code, weights, rows, made)


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
