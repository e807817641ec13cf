"""What decoder layers do to single rows: functions that write code, one row at a call.

The numbers of a row are whole vectors.
"""

from typing import Any

from llvmlite import ir

from eab.compiled.llvm_code import (
    FLOAT,
    INT64,
    POINTER,
    call,
    counting,
    function,
    number,
    variable,
)
from eab.compiled.vectors import (
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
