"""Products of four-bit weights, with the bits of PyTorch's operator `_weight_int4pack_mm_for_cpu`.

An input is rounded to bfloat16; a weight is (integer - 8) * scale + zero in float32; products are
added in the order of the inputs; the sum is rounded to bfloat16. Needs AVX-512.
"""

from dataclasses import dataclass
from typing import Any, Final

import torch
from llvmlite import ir
from torch import Tensor
from torch.nn import functional

from eab.compiled.llvm_code import (
    BYTE,
    FLOAT,
    INT64,
    POINTER,
    VOID,
    call,
    counting,
    element,
    function,
    number,
)
from eab.compiled.product_code import FLOAT_BYTES, Block, Rows, Weights
from eab.compiled.products import Part, Product, compile_now
from eab.compiled.tiles import Tile, call_tiles, new_sums, store_outputs
from eab.compiled.vectors import (
    FLOATS,
    INTEGERS,
    LANES,
    constant,
    constant_integer,
    load,
    multiply_add,
    repeated,
    rounded_to_bfloat16,
    store,
)

TILE: Final = Tile(rows=10, vectors=2)
BLOCK: Final = TILE.outputs
_HALVES: Final = ir.VectorType(ir.IntType(16), LANES)
_BYTES: Final = ir.VectorType(BYTE, LANES)


@dataclass(frozen=True)
class Int4Weights(Weights):
    """Integers, scales and zeros as `pack` stores them, for groups of this many inputs."""

    group: int
    tile = TILE
    dtype = torch.uint8
    dtype_of_constants = torch.bfloat16

    def fits(self, weight: Tensor, inputs: int) -> bool:
        is_packed = weight.shape[1:] == (inputs, BLOCK // 2)
        return is_packed and self.group % LANES == inputs % self.group == 0

    def rounded_bytes(self, inputs: int) -> int:
        return inputs * FLOAT_BYTES

    def write_functions(self, module: Any) -> None:
        _write_rounding(module)
        for rows in range(1, TILE.rows + 1):
            _write_tile(module, rows, self)

    def write_rounding(self, code: Any, row: Any, inputs: Any, rounded: Any, size: Any) -> None:
        call(code, "round_row", VOID, [row, inputs, rounded])

    def write_block(self, code: Any, rows: Rows, block: Block) -> None:
        groups = code.sdiv(rows.inputs, number(self.group))
        call_tiles(
            code,
            TILE,
            rows.count,
            lambda tile: [
                element(code, rows.first, BYTE, code.mul(tile.row, rows.stride)),
                rows.inputs,
                block.weight,
                block.constants,
                groups,
                element(code, block.added, FLOAT, code.mul(tile.row, block.added_stride)),
                block.added_stride,
                element(code, block.out, FLOAT, code.mul(tile.row, block.out_stride)),
                block.out_stride,
            ],
        )


def pack(integers: Tensor, scale: Tensor, zero: Tensor) -> tuple[Tensor, Tensor]:
    """Integers from 0 to 15, (out, in), and scale and zero, (out, in / group) bfloat16, ->
    (blocks, in, BLOCK / 2) uint8 and (blocks, in / group, 2, BLOCK) bfloat16, with zeros where the
    last block is not full.

    The lower half of a byte belongs to an output, the upper half to the one BLOCK / 2 later.
    """
    outputs, inputs = integers.shape
    groups, missing = scale.shape[1], -outputs % BLOCK
    compile_now(Int4Weights(inputs // groups))
    integers, scale, zero = (functional.pad(x, (0, 0, 0, missing)) for x in (integers, scale, zero))
    by_block = integers.to(torch.uint8).view(-1, BLOCK, inputs).transpose(1, 2)
    low, high = by_block.chunk(2, dim=-1)
    constants = torch.stack([scale, zero]).view(2, -1, BLOCK, groups).permute(1, 3, 0, 2)
    return (low | high << 4).contiguous(), constants.contiguous()


def part(weight: Tensor, constants: Tensor, bias: Tensor | None) -> Part:
    """What `pack` made, as a part of a product."""
    return Part(Int4Weights(weight.shape[1] // constants.shape[1]), weight, constants, bias)


def product(rows: Tensor, weight: Tensor, constants: Tensor) -> Tensor:
    """rows (R, in) float32 times what `pack` made: (R, blocks * BLOCK) float32."""
    return Product(rows.shape[1], part(weight, constants, None))(rows)


def _write_rounding(module: Any) -> None:
    code, (row, inputs, rounded) = function(module, "round_row", [POINTER, INT64, POINTER])
    with counting(code, number(0), inputs, number(LANES)) as index:
        store(code, rounded_to_bfloat16(code, load(code, row, index)), rounded, index)
    code.ret_void()


def _write_tile(module: Any, rows: int, kind: Int4Weights) -> None:
    kinds = [POINTER, INT64, POINTER, *[POINTER, INT64] * 3]
    code, given = function(module, f"tile_of_{rows}", kinds)
    row, stride, weight, constants, groups, added, added_stride, out, outputs = given
    sums = new_sums(code, rows, TILE.vectors, constant(0.0))
    starts = [element(code, row, FLOAT, code.mul(stride, number(index))) for index in range(rows)]
    with counting(code, number(0), groups, number(1)) as group:
        ours = [
            _floats(
                code, constants, code.add(code.mul(group, number(2 * TILE.vectors)), number(index))
            )
            for index in range(2 * TILE.vectors)
        ]
        first = code.mul(group, number(kind.group))
        with counting(code, first, code.add(first, number(kind.group)), number(1)) as index:
            line = element(code, weight, BYTE, code.mul(index, number(BLOCK // 2)))
            weights = _weights(code, line, ours[: TILE.vectors], ours[TILE.vectors :])
            for start, row_sums in zip(starts, sums, strict=True):
                place = element(code, start, FLOAT, index)
                value = repeated(code, code.load(place, typ=FLOAT))
                for factor, total in zip(weights, row_sums, strict=True):
                    known = code.load(total, typ=FLOATS)
                    code.store(multiply_add(code, value, factor, known), total)
    for index, row_sums in enumerate(sums):
        line = element(code, out, FLOAT, code.mul(outputs, number(index)))
        plus = element(code, added, FLOAT, code.mul(added_stride, number(index)))
        values = [rounded_to_bfloat16(code, code.load(total, typ=FLOATS)) for total in row_sums]
        store_outputs(code, values, plus, line)
    code.ret_void()


def _floats(code: Any, halves: Any, index: Any) -> Any:
    """A vector of an array of bfloat16 as floats."""
    halves = code.load(element(code, halves, _HALVES, index), typ=_HALVES, align=2)
    return code.bitcast(code.shl(code.zext(halves, INTEGERS), constant_integer(16)), FLOATS)


def _weights(code: Any, line: Any, scales: list[Any], zeros: list[Any]) -> list[Any]:
    """The weights of a block for one input, as vectors."""
    places = [element(code, line, _BYTES, number(index)) for index in range(TILE.vectors // 2)]
    pairs = [code.zext(code.load(at, typ=_BYTES, align=1), INTEGERS) for at in places]
    upper = [code.lshr(pair, constant_integer(4)) for pair in pairs]
    # The instruction reads only the lowest four bits of each index.
    steps = ir.Constant(FLOATS, [float(integer - 8) for integer in range(LANES)])
    return [
        multiply_add(
            code,
            call(code, "llvm.x86.avx512.permvar.sf.512", FLOATS, [steps, integers]),
            scale,
            zero,
        )
        for integers, scale, zero in zip([*pairs, *upper], scales, zeros, strict=True)
    ]
