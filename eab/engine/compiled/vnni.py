"""Eight-bit integers in tiles, by the instruction `vpdpbusd` of AVX-512 VNNI.

The instruction multiplies 64 unsigned by 64 signed bytes, and adds four neighbouring products to
each of 16 sums of 32 bits. The weights are made unsigned by adding 128; in the end, 128 times the
sum of the inputs is subtracted. The sums are exact, so the order of the additions does not matter.
"""

from typing import Any, Final

import torch
from llvmlite import ir
from torch import Tensor
from torch.nn import functional

from eab.engine.compiled.llvm_code import (
    BYTE,
    FLOAT,
    FLOATS,
    INT32,
    INT64,
    INTEGERS,
    POINTER,
    call,
    counting,
    element,
    function,
    number,
    repeated,
    variable,
)
from eab.engine.compiled.products import Part, compile_now, multiplied
from eab.engine.compiled.tiles import Tile, Weights, vectors
from eab.weight_formats import LARGEST_INT8

TILE: Final = Tile(rows=6, vectors=4)
BLOCK: Final = TILE.outputs
_SHIFT: Final = 128
_QUAD: Final = 4  # neighbouring inputs, whose products are added by one instruction
_TAIL: Final = 8  # bytes after a rounded row: its scale, float32, and the sum of its integers


class VnniWeights(Weights):
    """Integers and scales as `pack` stores them; rows are rounded as `quantize_rows` does."""

    tile = TILE
    dtype = torch.uint8
    step_bytes = BLOCK * _QUAD
    vector = INTEGERS

    def fits(self, weight: Tensor, inputs: int) -> bool:
        return weight.shape[1:] == (self.steps(inputs), BLOCK, _QUAD)

    def steps(self, inputs: int) -> int:
        return -(-inputs // _QUAD)

    def rounded_bytes(self, inputs: int) -> int:
        return self.steps(inputs) * _QUAD + _TAIL

    def write_rounding(self, module: Any) -> None:
        _write_rounding(module)

    def read(self, code: Any, place: Any) -> Any:
        return repeated(code, code.load(place, typ=INT32, align=4), INTEGERS)

    def add_product(self, code: Any, total: Any, weights: Any, inputs: Any) -> Any:
        terms = [total, weights, inputs]
        return call(code, "llvm.x86.avx512.vpdpbusd.512", INTEGERS, terms)

    def outputs(self, code: Any, sums: list[Any], tail: Any, constants: Any) -> list[Any]:
        """The sums of a row times the scales of the weights and of the row."""
        row_scale = repeated(code, code.load(tail, typ=FLOAT, align=4))
        total = code.load(element(code, tail, INT32, number(1)), typ=INT32, align=4)
        shift = repeated(code, code.mul(total, ir.Constant(INT32, _SHIFT)), INTEGERS)
        floats = (code.sitofp(code.sub(total, shift), FLOATS) for total in sums)
        scales = vectors(code, constants, FLOATS, TILE.vectors)
        scaled = [code.fmul(value, scale) for value, scale in zip(floats, scales, strict=True)]
        return [code.fmul(value, row_scale) for value in scaled]


VNNI: Final = VnniWeights()


def pack(integers: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """integers (out, in) int8 and scale (out,) -> (blocks, in / 4, BLOCK, 4) uint8 and
    (blocks, BLOCK), with zeros where the last block is not full.
    """
    compile_now(VNNI)
    outputs, inputs = integers.shape
    whole = functional.pad(integers, (0, -inputs % _QUAD, 0, -outputs % BLOCK))
    shifted = whole.view(torch.uint8) + _SHIFT  # modulo 256
    blocks = shifted.view(-1, BLOCK, whole.shape[1] // _QUAD, _QUAD).transpose(1, 2)
    return blocks.contiguous(), functional.pad(scale, (0, -outputs % BLOCK)).view(-1, BLOCK)


def part(weight: Tensor, scale: Tensor, bias: Tensor | None) -> Part:
    """What `pack` made, as a part of a product."""
    return Part(VNNI, weight, scale, bias)


def product(rows: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """rows (R, in) float32 times what `pack` made: (R, blocks * BLOCK) float32."""
    return multiplied(rows, part(weight, scale, None))


def _write_rounding(module: Any) -> None:
    """A row's integers, zeros up to a multiple of four, its scale, and the sum of the integers."""
    code, given = function(module, "round_row", [POINTER, INT64, POINTER, INT64])
    row, inputs, rounded, quads = given
    size = code.mul(quads, number(_QUAD))
    largest = variable(code, ir.Constant(FLOAT, 0.0))
    with counting(code, number(0), inputs, number(1)) as index:
        value = code.load(element(code, row, FLOAT, index), typ=FLOAT)
        magnitude = call(code, "llvm.fabs.f32", FLOAT, [value])
        code.store(_larger_float(code, code.load(largest, typ=FLOAT), magnitude), largest)
    scale = code.fdiv(code.load(largest, typ=FLOAT), ir.Constant(FLOAT, float(LARGEST_INT8)))
    scale = _larger_float(code, scale, ir.Constant(FLOAT, torch.finfo(torch.float32).tiny))
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


def _larger_float(code: Any, one: Any, other: Any) -> Any:
    """The larger float; unlike `llvm.maxnum`, this keeps NaN, which then reaches the outputs."""
    return call(code, "llvm.maximum.f32", FLOAT, [one, other])
