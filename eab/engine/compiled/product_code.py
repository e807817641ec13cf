"""The code of products: rows are prepared, and multiplied by blocks of weights; and what decoder
layers do to single rows, whose numbers are whole vectors.

Threads share the rows that are prepared, wait for each other, and share the blocks of outputs.
"""

from typing import Any, Final, NamedTuple

from llvmlite import ir

from eab.engine.compiled.llvm_code import (
    BIT,
    BYTE,
    FLOAT,
    INT64,
    POINTER,
    VOID,
    WORK,
    as_float,
    call,
    counting,
    element,
    function,
    integers,
    number,
    threads,
    variable,
    wait_for_all_threads,
)
from eab.engine.compiled.tiles import Block, Rows, Weights, share, write_block, write_tile
from eab.engine.compiled.vectors import (
    FLOATS,
    LANES,
    add,
    constant,
    exponential,
    load,
    multiply_add,
    over_lanes,
    repeated,
    store,
)


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
