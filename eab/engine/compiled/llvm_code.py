"""Native code for this processor, written as LLVM's intermediate representation.

llvmlite compiles it, so no compiler has to be installed. It runs on the threads of PyTorch: idle
threads of OpenMP spin for a while, and those of a second pool would take the processor from them.
For the instructions see https://llvm.org/docs/LangRef.html.
"""

import ctypes
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from llvmlite import binding, ir
from torch import Tensor

from eab.engine.compiled import has_instructions

POINTER: Final = ir.PointerType()
BIT, BYTE, INT32, INT64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
FLOAT: Final = ir.FloatType()
VOID: Final = ir.VoidType()
WORK: Final = "work"


class Parallel:
    """A compiled function that threads of PyTorch run at once, each doing its share."""

    def __init__(self, module: Any) -> None:
        """Compile the module, whose function WORK takes a pointer to 64-bit integers."""
        self._engine = _compile(module)  # owns the code
        self._address = ctypes.c_void_p(self._engine.get_function_address(WORK))
        # In the process of PyTorch, this is the function of the library that PyTorch uses.
        self._run: Any = ctypes.CDLL(None).GOMP_parallel

    def __call__(self, *arguments: int, shares: int) -> None:
        """Run it with these numbers and addresses, and wait until all threads have ended.

        `shares` is the number of parts of the work. Still, all threads take part, or one alone:
        when a few do, OpenMP ends the others and must start them again later.
        """
        passed = (ctypes.c_int64 * len(arguments))(*arguments)
        self._run(self._address, passed, torch.get_num_threads() if shares > 1 else 1, 0)


def address(tensor: Tensor, dtype: torch.dtype = torch.float32) -> int:
    """Where the numbers of a contiguous tensor are, for code that cannot check it.

    Raises:
        TypeError: They are not in the memory of the CPU in this dtype, or not next to each other.
    """
    if not tensor.is_contiguous():
        raise TypeError("compiled code needs contiguous tensors; call contiguous()")
    return _address(tensor, dtype)


def input_address(tensor: Tensor) -> int:
    """Where the float32 numbers of an input begin, which may have strides.

    Raises:
        TypeError: They are not in the memory of the CPU in this dtype; or a gradient is expected,
            which compiled code does not have.
    """
    if tensor.is_neg() or (tensor.requires_grad and torch.is_grad_enabled()):
        raise TypeError(
            "compiled code has no gradient and does not read negated views; call it under "
            "torch.inference_mode(), with x.resolve_neg()"
        )
    return _address(tensor, torch.float32)


def _address(tensor: Tensor, dtype: torch.dtype) -> int:
    place = tensor.data_ptr()
    if tensor.dtype is not dtype or not tensor.is_cpu or not (place or not tensor.numel()):
        raise TypeError(
            f"compiled code needs {dtype} tensors on the CPU, and this one is {tensor.dtype} on "
            f"{tensor.device}"
        )
    return place


def compile_and_run_nothing() -> None:
    module = ir.Module()
    code, _ = function(module, WORK, [POINTER])
    wait_for_all_threads(code)
    code.ret_void()
    Parallel(module)(shares=2)


def threads(code: Any) -> tuple[Any, Any]:
    """The number of this thread, from 0, and how many threads there are."""
    this = call(code, "omp_get_thread_num", INT32, [])
    count = call(code, "omp_get_num_threads", INT32, [])
    return code.sext(this, INT64), code.sext(count, INT64)


def wait_for_all_threads(code: Any) -> None:
    call(code, "GOMP_barrier", VOID, [])


def call(code: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """Call one of LLVM's own functions, such as `llvm.fabs.f32`, or one of OpenMP's."""
    function = code.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = ir.Function(code.module, kind, name)
    return code.call(function, arguments)


@contextmanager
def counting(code: Any, start: Any, stop: Any, step: Any) -> Iterator[Any]:
    """A loop over `range(start, stop, step)`; gives the index."""
    index = variable(code, start)
    head, body, end = (code.append_basic_block() for _ in range(3))
    code.branch(head)
    code.position_at_end(head)
    value = code.load(index, typ=INT64)
    code.cbranch(code.icmp_signed("<", value, stop), body, end)
    code.position_at_end(body)
    yield value
    code.store(code.add(value, step), index)
    code.branch(head)
    code.position_at_end(end)


def variable(code: Any, value: Any) -> Any:
    """The address of a variable with this value; LLVM turns it into a register."""
    with code.goto_entry_block():
        address = code.alloca(value.type)
    code.store(value, address)
    return address


def array(code: Any, kind: Any, size: int) -> Any:
    """The address of an array of this many elements on the stack."""
    with code.goto_entry_block():
        return code.alloca(kind, size)


def function(module: Any, name: str, kinds: list[Any], inline: bool = True) -> tuple[Any, Any]:
    """A new function without a result: what writes its code, and its arguments. Only the one named
    WORK can be called from outside, so LLVM can drop what it inlines.
    """
    made = ir.Function(module, ir.FunctionType(VOID, kinds), name)
    made.linkage = "external" if name == WORK else "internal"
    if not inline:
        made.attributes.add("noinline")
    return ir.IRBuilder(made.append_basic_block()), made.args


def integers(code: Any, array: Any, count: int) -> list[Any]:
    """The first 64-bit integers of an array."""
    places = (element(code, array, INT64, number(index)) for index in range(count))
    return [code.load(place, typ=INT64) for place in places]


def bits_of(value: float) -> int:
    """A float32 as an argument; the compiled function reads it by `as_float`."""
    return int.from_bytes(struct.pack("<f", value), "little")


def as_float(code: Any, argument: Any) -> Any:
    return code.bitcast(code.trunc(argument, INT32), FLOAT)


def element(code: Any, array: Any, kind: Any, index: Any) -> Any:
    """The address of an element of an array of this type."""
    return code.gep(array, [index], source_etype=kind)


def number(value: int) -> Any:
    return ir.Constant(INT64, value)


def _compile(module: Any) -> Any:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
    )
    parsed = binding.parse_assembly(str(module))
    parsed.verify()
    passes = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(3))
    passes.getModulePassManager().run(parsed, passes)
    engine = binding.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    return engine


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
