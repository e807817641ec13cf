"""Products of float32 weights.

An output is the sum of partial sums over `PART` inputs each, so rounding errors stay small, and the
weights of a part stay in the processor's cache while all rows are multiplied by them.
"""

from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from eab.compiled.llvm_code import (
    FLOAT,
    INT64,
    POINTER,
    counting,
    element,
    function,
    number,
)
from eab.compiled.product_code import FLOAT_BYTES, Block, Rows, Weights
from eab.compiled.products import Part, Product, compile_now
from eab.compiled.tiles import (
    Tile,
    TileCall,
    call_tiles,
    fetch_ahead,
    new_sums,
    store_outputs,
    vectors,
)
from eab.compiled.vectors import FLOATS, WIDE, constant, multiply_add, repeated

PART: Final = 256
TILE: Final = Tile(rows=10, vectors=2) if WIDE else Tile(rows=6, vectors=2)
BLOCK: Final = TILE.outputs


class Float32Weights(Weights):
    """Weights as `pack` stores them."""

    tile = TILE
    dtype = torch.float32

    def fits(self, weight: Tensor, inputs: int) -> bool:
        return weight.shape[1:] == (inputs, BLOCK)

    def rounded_bytes(self, inputs: int) -> int:
        return 0

    def write_functions(self, module: Any) -> None:
        for rows in range(1, TILE.rows + 1):
            _write_tile(module, rows)

    def write_rounding(self, code: Any, row: Any, inputs: Any, rounded: Any, size: Any) -> None:
        raise NotImplementedError

    def write_block(self, code: Any, rows: Rows, block: Block) -> None:
        with counting(code, number(0), rows.inputs, number(PART)) as start:
            left = code.sub(rows.inputs, start)
            size = code.select(code.icmp_signed("<", left, number(PART)), left, number(PART))
            weight = element(code, block.weight, FLOAT, code.mul(start, number(BLOCK)))
            is_first = code.icmp_signed("==", start, number(0))

            def operands(tile: TileCall) -> list[Any]:
                line = element(code, block.out, FLOAT, code.mul(tile.row, block.out_stride))
                added = element(code, block.added, FLOAT, code.mul(tile.row, block.added_stride))
                place = code.add(code.mul(tile.row, rows.stride), start)
                return [
                    element(code, rows.first, FLOAT, place),
                    rows.stride,
                    weight,
                    size,
                    *tile.ahead(code, weight, size, BLOCK * FLOAT_BYTES),
                    code.select(is_first, added, line),
                    code.select(is_first, block.added_stride, block.out_stride),
                    line,
                    block.out_stride,
                ]

            call_tiles(code, TILE, rows.count, operands)


FLOAT32: Final = Float32Weights()


def pack(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """weight (out, in) and bias (out,) -> (blocks, in, BLOCK) and (blocks, BLOCK), with zeros where
    the last block is not full.
    """
    compile_now(FLOAT32)
    inputs, missing = weight.shape[1], -len(weight) % BLOCK
    if missing:
        weight = functional.pad(weight, (0, 0, 0, missing))
        bias = None if bias is None else functional.pad(bias, (0, missing))
    blocks = weight.reshape(-1, BLOCK, inputs).transpose(1, 2)
    return blocks.contiguous(), None if bias is None else bias.reshape(-1, BLOCK)


def columns(weight: Tensor, outputs: Tensor) -> Tensor:
    """The weights of these outputs (...) in what `pack` made: (..., in)."""
    return weight[outputs // BLOCK, :, outputs % BLOCK]


def part(weight: Tensor, bias: Tensor | None) -> Part:
    """What `pack` made, as a part of a product."""
    return Part(FLOAT32, weight, None, bias)


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (..., in) float32 times what `pack` made: (..., blocks * BLOCK) float32."""
    rows = x.reshape(-1, x.shape[-1])
    out = Product(rows.shape[1], part(weight, bias))(rows)
    return out.view(*x.shape[:-1], out.shape[1])


def _write_tile(module: Any, rows: int) -> None:
    """Add the products of a part of the inputs to what came before, or to the bias."""
    kinds = [POINTER, INT64] * 5
    code, given = function(module, f"tile_of_{rows}", kinds)
    row, stride, weight, size, ahead, share, before, before_stride, out, outputs = given
    sums = new_sums(code, rows, TILE.vectors, constant(0.0))
    starts = [element(code, row, FLOAT, code.mul(stride, number(index))) for index in range(rows)]
    with counting(code, number(0), size, number(1)) as index:
        place = element(code, weight, FLOAT, code.mul(index, number(BLOCK)))
        weights = vectors(code, place, FLOATS, TILE.vectors)
        fetch_ahead(code, ahead, share, index)
        for start, row_sums in zip(starts, sums, strict=True):
            value = code.load(element(code, start, FLOAT, index), typ=FLOAT)
            value = repeated(code, value)
            for factor, total in zip(weights, row_sums, strict=True):
                added = multiply_add(code, value, factor, code.load(total, typ=FLOATS))
                code.store(added, total)
    for index, row_sums in enumerate(sums):
        added = element(code, before, FLOAT, code.mul(before_stride, number(index)))
        line = element(code, out, FLOAT, code.mul(outputs, number(index)))
        values = [code.load(total, typ=FLOATS) for total in row_sums]
        store_outputs(code, values, added, line)
    code.ret_void()
