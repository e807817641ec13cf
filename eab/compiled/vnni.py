"""Products of eight-bit integers by the instruction `vpdpbusd` of AVX-512 VNNI.

The instruction multiplies 64 unsigned by 64 signed bytes, and adds four neighbouring products to
each of 16 sums of 32 bits. The weights are made unsigned by adding 128; in the end, 128 times the
sum of the inputs is subtracted. The sums are exact, so the order of the additions does not matter.
"""

from functools import cache
from typing import Any, Final

import torch
from llvmlite import ir
from torch import Tensor
from torch.nn import functional

from eab.compiled.llvm_code import (
    BYTE,
    FLOAT,
    INT32,
    INT64,
    POINTER,
    VOID,
    Parallel,
    address,
    call,
    counting,
    element,
    function,
    input_address,
    integers,
    number,
    repeated,
    threads,
    variable,
    wait_for_all_threads,
)
from eab.compiled.tiles import (
    BLOCK,
    FLOATS,
    LANES,
    ROWS,
    call_tiles,
    new_sums,
    share_of_thread,
    vectors,
)
from eab.weight_formats import LARGEST_INT8

_SHIFT: Final = 128
_QUAD: Final = 4  # neighbouring inputs, whose products are added by one instruction
_TAIL: Final = 8  # bytes after a rounded row: its scale, float32, and the sum of its integers
_INTEGERS: Final = ir.VectorType(INT32, LANES)


def pack(integers: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """integers (out, in) int8 and scale (out,) -> (blocks, in / 4, BLOCK, 4) uint8 and
    (blocks, BLOCK), with zeros where the last block is not full.
    """
    _compiled()  # so that what prevents it is known now
    outputs, inputs = integers.shape
    whole = functional.pad(integers, (0, -inputs % _QUAD, 0, -outputs % BLOCK))
    shifted = whole.view(torch.uint8) + _SHIFT  # modulo 256
    blocks = shifted.view(-1, BLOCK, whole.shape[1] // _QUAD, _QUAD).transpose(1, 2)
    return blocks.contiguous(), functional.pad(scale, (0, -outputs % BLOCK)).view(-1, BLOCK)


def product(rows: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """Round the rows as `quantize_rows` does, and multiply them by what `pack` made.

    rows (R, in) float32 -> (R, blocks * BLOCK) float32.
    """
    rows = rows.contiguous()
    count, inputs = rows.shape
    blocks, quads, _, _ = weight.shape
    rounded = torch.empty(count, quads * _QUAD + _TAIL, dtype=torch.uint8, device="cpu")
    out = torch.empty(count, blocks * BLOCK, dtype=torch.float32, device="cpu")
    _compiled()(
        input_address(rows),
        rounded.data_ptr(),
        address(weight, torch.uint8),
        address(scale, torch.float32),
        out.data_ptr(),
        count,
        inputs,
        quads,
        blocks,
        shares=blocks,
    )
    return out


@cache
def _compiled() -> Parallel:
    module = ir.Module()
    _write_rounding(module)
    for rows in range(1, ROWS + 1):
        _write_tile(module, rows)
    _write_work(module)
    return Parallel(module, "work")


def _write_work(module: Any) -> None:
    """A thread rounds its share of the rows, and multiplies all rows by its share of the blocks."""
    code, [arguments] = function(module, "work", [POINTER])
    given = integers(code, arguments, 9)
    rows, rounded, weight, scale, out = (code.inttoptr(value, POINTER) for value in given[:5])
    count, inputs, quads, blocks = given[5:]
    size, outputs = code.mul(quads, number(_QUAD)), code.mul(blocks, number(BLOCK))
    stride = code.add(size, number(_TAIL))
    this, of = threads(code)
    with counting(code, this, count, of) as row:
        source = element(code, rows, FLOAT, code.mul(row, inputs))
        target = element(code, rounded, BYTE, code.mul(row, stride))
        call(code, "round_row", VOID, [source, inputs, target, size])
    wait_for_all_threads(code)
    first, end = share_of_thread(code, blocks)
    with counting(code, first, end, number(1)) as block:
        output = code.mul(block, number(BLOCK))
        operands = [
            element(code, weight, BYTE, code.mul(output, size)),
            quads,
            element(code, scale, FLOAT, output),
        ]
        call_tiles(
            code,
            count,
            lambda row: [
                element(code, rounded, BYTE, code.mul(row, stride)),
                *operands,
                element(code, out, FLOAT, code.add(code.mul(row, outputs), output)),
                outputs,
            ],
        )
    code.ret_void()


def _write_rounding(module: Any) -> None:
    """A row's integers, zeros up to a multiple of four, its scale, and the sum of the integers."""
    code, given = function(module, "round_row", [POINTER, INT64, POINTER, INT64])
    row, inputs, rounded, size = given
    largest = variable(code, ir.Constant(FLOAT, 0.0))
    with counting(code, number(0), inputs, number(1)) as index:
        value = code.load(element(code, row, FLOAT, index), typ=FLOAT)
        magnitude = call(code, "llvm.fabs.f32", FLOAT, [value])
        code.store(_larger(code, code.load(largest, typ=FLOAT), magnitude), largest)
    scale = code.fdiv(code.load(largest, typ=FLOAT), ir.Constant(FLOAT, float(LARGEST_INT8)))
    scale = _larger(code, scale, ir.Constant(FLOAT, torch.finfo(torch.float32).tiny))
    total = variable(code, ir.Constant(INT32, 0))
    with counting(code, number(0), inputs, number(1)) as index:
        steps = code.fdiv(code.load(element(code, row, FLOAT, index), typ=FLOAT), scale)
        # The outputs of a row with NaN are NaN, whatever its integers are.
        steps = code.select(code.fcmp_ordered("ord", steps, steps), steps, ir.Constant(FLOAT, 0.0))
        integer = code.fptosi(call(code, "llvm.rint.f32", FLOAT, [steps]), INT32)
        code.store(code.trunc(integer, BYTE), element(code, rounded, BYTE, index))
        code.store(code.add(code.load(total, typ=INT32), integer), total)
    with counting(code, inputs, size, number(1)) as index:
        code.store(ir.Constant(BYTE, 0), element(code, rounded, BYTE, index))
    tail = element(code, rounded, BYTE, size)
    code.store(scale, tail, align=4)
    code.store(code.load(total, typ=INT32), element(code, tail, INT32, number(1)), align=4)
    code.ret_void()


def _larger(code: Any, one: Any, other: Any) -> Any:
    """The larger float; unlike `llvm.maxnum`, this keeps NaN, which then reaches the outputs."""
    return call(code, "llvm.maximum.f32", FLOAT, [one, other])


def _write_tile(module: Any, rows: int) -> None:
    kinds = [POINTER, POINTER, INT64, POINTER, POINTER, INT64]
    code, given = function(module, f"tile_of_{rows}", kinds)
    rounded, weight, quads, scale, out, outputs = given
    size = code.mul(quads, number(_QUAD))
    stride = code.add(size, number(_TAIL))
    sums = new_sums(code, rows, ir.Constant(_INTEGERS, [0] * LANES))
    starts = [element(code, rounded, BYTE, code.mul(stride, number(row))) for row in range(rows)]
    with counting(code, number(0), quads, number(1)) as quad:
        place = element(code, weight, BYTE, code.mul(quad, number(BLOCK * _QUAD)))
        weights = vectors(code, place, _INTEGERS)
        for start, row_sums in zip(starts, sums, strict=True):
            inputs = code.load(element(code, start, INT32, quad), typ=INT32, align=4)
            inputs = repeated(code, inputs, _INTEGERS)
            for four, total in zip(weights, row_sums, strict=True):
                terms = [code.load(total, typ=_INTEGERS), four, inputs]
                code.store(call(code, "llvm.x86.avx512.vpdpbusd.512", _INTEGERS, terms), total)
    for row, (start, row_sums) in enumerate(zip(starts, sums, strict=True)):
        tail = element(code, start, BYTE, size)
        line = element(code, out, FLOAT, code.mul(outputs, number(row)))
        shifted = [code.load(total, typ=_INTEGERS) for total in row_sums]
        _write_outputs(code, shifted, tail, vectors(code, scale, FLOATS), line)
    code.ret_void()


def _write_outputs(code: Any, shifted: list[Any], tail: Any, scales: list[Any], line: Any) -> None:
    """The outputs of a row: its sums times the scales of the weights and of the row."""
    row_scale = repeated(code, code.load(tail, typ=FLOAT, align=4), FLOATS)
    total = code.load(element(code, tail, INT32, number(1)), typ=INT32, align=4)
    shift = repeated(code, code.mul(total, ir.Constant(INT32, _SHIFT)), _INTEGERS)
    for vector, (total, scale) in enumerate(zip(shifted, scales, strict=True)):
        scaled = code.fmul(code.sitofp(code.sub(total, shift), FLOATS), scale)
        target = element(code, line, FLOATS, number(vector))
        code.store(code.fmul(scaled, row_scale), target, align=4)
