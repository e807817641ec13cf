"""Products of float32 weights.

An output is the sum of partial sums over `PART` inputs each, so rounding errors stay small, and the
weights of a part stay in the processor's cache while all rows are multiplied by them.
"""

from functools import cache
from typing import Any, Final

import torch
from llvmlite import ir
from torch import Tensor
from torch.nn import functional

from eab.compiled.llvm_code import (
    FLOAT,
    INT64,
    POINTER,
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

PART: Final = 256


def pack(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """weight (out, in) and bias (out,) -> (blocks, in, BLOCK) and (blocks, BLOCK), with zeros where
    the last block is not full.
    """
    _compiled()  # so that what prevents it is known now
    inputs, missing = weight.shape[1], -len(weight) % BLOCK
    if missing:
        weight = functional.pad(weight, (0, 0, 0, missing))
        bias = None if bias is None else functional.pad(bias, (0, missing))
    blocks = weight.reshape(-1, BLOCK, inputs).transpose(1, 2)
    return blocks.contiguous(), None if bias is None else bias.reshape(-1, BLOCK)


def unpack(weight: Tensor, outputs: int) -> Tensor:
    """The weight (out, in) that `pack` was given."""
    return weight.transpose(1, 2).flatten(0, 1)[:outputs]


def columns(weight: Tensor, outputs: Tensor) -> Tensor:
    """The weights of these outputs (...) in what `pack` made: (..., in)."""
    return weight[outputs // BLOCK, :, outputs % BLOCK]


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (..., in) float32 times what `pack` made: (..., blocks * BLOCK) float32."""
    blocks, inputs, _ = weight.shape
    if x.shape[-1] != inputs:
        raise ValueError(f"the rows have {x.shape[-1]} numbers, and the weight has {inputs} inputs")
    if bias is None:
        bias = _zeros(blocks * BLOCK)
    x = x.contiguous()
    place, out = input_address(x), x.new_empty((*x.shape[:-1], blocks * BLOCK))
    _compiled()(
        place,
        address(weight, torch.float32),
        address(bias, torch.float32),
        out.data_ptr(),
        x.numel() // inputs,
        inputs,
        blocks,
        shares=blocks,
    )
    return out


@cache
def _zeros(outputs: int) -> Tensor:
    return torch.zeros(outputs, dtype=torch.float32, device="cpu")


@cache
def _compiled() -> Parallel:
    module = ir.Module()
    for rows in range(1, ROWS + 1):
        _write_tile(module, rows)
    _write_work(module)
    return Parallel(module, "work")


def _write_work(module: Any) -> None:
    code, [arguments] = function(module, "work", [POINTER])
    given = integers(code, arguments, 7)
    rows, weight, bias, out = (code.inttoptr(value, POINTER) for value in given[:4])
    count, inputs, blocks = given[4:]
    outputs = code.mul(blocks, number(BLOCK))
    first, end = share_of_thread(code, blocks)
    with (
        counting(code, first, end, number(1)) as block,
        counting(code, number(0), inputs, number(PART)) as start,
    ):
        output = code.mul(block, number(BLOCK))
        left = code.sub(inputs, start)
        size = code.select(code.icmp_signed("<", left, number(PART)), left, number(PART))
        place = code.add(code.mul(output, inputs), code.mul(start, number(BLOCK)))
        is_first = code.icmp_signed("==", start, number(0))

        def operands(row: Any) -> list[Any]:
            line = element(code, out, FLOAT, code.add(code.mul(row, outputs), output))
            return [
                element(code, rows, FLOAT, code.add(code.mul(row, inputs), start)),
                inputs,
                element(code, weight, FLOAT, place),
                size,
                code.select(is_first, element(code, bias, FLOAT, output), line),
                code.select(is_first, number(0), outputs),
                line,
                outputs,
            ]

        call_tiles(code, count, operands)
    code.ret_void()


def _write_tile(module: Any, rows: int) -> None:
    """Add the products of a part of the inputs to what came before, or to the bias."""
    kinds = [POINTER, INT64, POINTER, INT64, POINTER, INT64, POINTER, INT64]
    code, given = function(module, f"tile_of_{rows}", kinds)
    row, inputs, weight, size, before, before_stride, out, outputs = given
    sums = new_sums(code, rows, ir.Constant(FLOATS, [0.0] * LANES))
    starts = [element(code, row, FLOAT, code.mul(inputs, number(index))) for index in range(rows)]
    with counting(code, number(0), size, number(1)) as index:
        weights = vectors(
            code, element(code, weight, FLOAT, code.mul(index, number(BLOCK))), FLOATS
        )
        for start, row_sums in zip(starts, sums, strict=True):
            value = code.load(element(code, start, FLOAT, index), typ=FLOAT)
            value = repeated(code, value, FLOATS)
            for factor, total in zip(weights, row_sums, strict=True):
                terms = [value, factor, code.load(total, typ=FLOATS)]
                code.store(call(code, f"llvm.fma.v{LANES}f32", FLOATS, terms), total)
    for index, row_sums in enumerate(sums):
        added = element(code, before, FLOAT, code.mul(before_stride, number(index)))
        line = element(code, out, FLOAT, code.mul(outputs, number(index)))
        for vector, (total, known) in enumerate(
            zip(row_sums, vectors(code, added, FLOATS), strict=True)
        ):
            value = code.fadd(code.load(total, typ=FLOATS), known)
            code.store(value, element(code, line, FLOATS, number(vector)), align=4)
    code.ret_void()
