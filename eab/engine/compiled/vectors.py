"""Vectors of `LANES` floats in compiled code."""

from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir

from eab.engine.compiled import has_instructions
from eab.engine.compiled.llvm_code import FLOAT, INT32, call, element

WIDE: Final = has_instructions("avx512_f")
LANES: Final = 16 if WIDE else 8
FLOATS: Final = ir.VectorType(FLOAT, LANES)
INTEGERS: Final = ir.VectorType(INT32, LANES)


def load(code: Any, array: Any, index: Any) -> Any:
    return code.load(element(code, array, FLOAT, index), typ=FLOATS, align=4)


def store(code: Any, value: Any, array: Any, index: Any) -> None:
    code.store(value, element(code, array, FLOAT, index), align=4)


def constant(value: float) -> Any:
    return ir.Constant(FLOATS, [value] * LANES)


def repeated(code: Any, value: Any, kind: Any = FLOATS) -> Any:
    """A vector of this type that has `value` in all lanes."""
    unset = ir.Constant(kind, ir.Undefined)
    first = code.insert_element(unset, value, ir.Constant(INT32, 0))
    return code.shuffle_vector(first, unset, _order([0] * kind.count))


def multiply_add(code: Any, one: Any, other: Any, added: Any) -> Any:
    return call(code, f"llvm.fma.v{LANES}f32", FLOATS, [one, other, added])


def larger(code: Any, one: Any, other: Any) -> Any:
    """The larger of each two floats; unlike `llvm.maxnum`, this keeps NaN."""
    return call(code, f"llvm.maximum.v{LANES}f32", FLOATS, [one, other])


def sums_of_lanes(code: Any, vectors: list[Any]) -> Any:
    """A vector with the sum of the lanes of each of `LANES` vectors: pairs are added up after
    sorting their lanes, until one vector is left.
    """
    width = 1
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [_sum_of_runs(code, one, other, width) for one, other in pairs]
        width *= 2
    return vectors[0]


def _sum_of_runs(code: Any, one: Any, other: Any, width: int) -> Any:
    """Each two neighbouring runs of `width` lanes added, from the two vectors in turn."""
    even = [
        start + lane + source * LANES
        for start in range(0, LANES, 2 * width)
        for source in (0, 1)
        for lane in range(width)
    ]
    odd = [lane + width for lane in even]
    return code.fadd(*(code.shuffle_vector(one, other, _order(lanes)) for lanes in (even, odd)))


def over_lanes(code: Any, vector: Any, combine: Callable[[Any, Any, Any], Any]) -> Any:
    """All lanes of a vector combined, half with half."""
    unset, width = ir.Constant(FLOATS, ir.Undefined), LANES // 2
    while width:
        turned = _order([(lane + width) % LANES for lane in range(LANES)])
        vector = combine(code, vector, code.shuffle_vector(vector, unset, turned))
        width //= 2
    return code.extract_element(vector, ir.Constant(INT32, 0))


def add(code: Any, one: Any, other: Any) -> Any:
    return code.fadd(one, other)


def exponential(code: Any, x: Any) -> Any:
    """e to the power of x, at most 0, with an error below 2 units in the last place; 0 below -87.

    x = n ln 2 + r, and e^r is a polynomial (its coefficients are those of Cephes, netlib.org).
    """
    shift = constant(1.5 * 2**23)  # adding it rounds to an integer, then in the lowest bits
    shifted = multiply_add(code, x, constant(1.4426950408889634), shift)
    whole = code.fsub(shifted, shift)
    rest = multiply_add(code, whole, constant(-0.693359375), x)
    rest = multiply_add(code, whole, constant(2.12194440e-4), rest)
    power = constant(1.9875691500e-4)
    for factor in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5, 1, 1):
        power = multiply_add(code, power, rest, constant(factor))
    bits = code.shl(code.bitcast(shifted, INTEGERS), constant_integer(23))
    exponent = code.add(bits, constant_integer(127 << 23))
    result = code.fmul(power, code.bitcast(exponent, FLOATS))
    return code.select(code.fcmp_ordered("<", x, constant(-87.0)), constant(0.0), result)


def rounded_to_bfloat16(code: Any, x: Any) -> Any:
    """The nearest numbers of bfloat16, as floats; of two equally near, the even one."""
    bits = code.bitcast(x, INTEGERS)
    odd = code.and_(code.lshr(bits, constant_integer(16)), constant_integer(1))
    bits = code.add(code.add(bits, constant_integer(0x7FFF)), odd)
    rounded = code.bitcast(code.and_(bits, constant_integer(-(1 << 16))), FLOATS)
    return code.select(code.fcmp_unordered("uno", x, x), x, rounded)


def constant_integer(value: int) -> Any:
    """A vector that has this integer in all lanes."""
    return ir.Constant(INTEGERS, [value] * LANES)


def _order(lanes: list[int]) -> Any:
    return ir.Constant(ir.VectorType(INT32, len(lanes)), lanes)
