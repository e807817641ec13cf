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
    element,
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


def write_rotation(module: Any) -> None:
    """`rotate`: in each head, turn pairs of numbers from its first and its second half."""
    code, given = function(module, "rotate", [POINTER, INT64, INT64, POINTER, POINTER])
    row, heads, size, cos, sin = given
    half = code.sdiv(size, number(2))
    with (
        counting(code, number(0), heads, number(1)) as head,
        counting(code, number(0), half, number(LANES)) as low,
    ):
        line, high = element(code, row, FLOAT, code.mul(head, size)), code.add(low, half)
        one, other = load(code, line, low), load(code, line, high)
        turned = code.fmul(one, load(code, cos, low))
        turned = code.fsub(turned, code.fmul(other, load(code, sin, low)))
        back = code.fmul(other, load(code, cos, high))
        back = code.fadd(back, code.fmul(one, load(code, sin, high)))
        store(code, turned, line, low)
        store(code, back, line, high)
    code.ret_void()
