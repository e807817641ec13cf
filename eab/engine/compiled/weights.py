"""The kinds of weights in tiles: float32, eight-bit integers, and four-bit integers.

Each kind has `pack`, which stores weights in the order in which its products read them, `part`,
which makes what it stored a part of a product, and `product`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    LANES,
    POINTER,
    WIDE,
    call,
    constant_integer,
    counting,
    element,
    function,
    load,
    multiply_add,
    number,
    repeated,
    rounded_to_bfloat16,
    store,
    variable,
)
from eab.engine.compiled.products import FLOAT_BYTES, Part, compile_now, multiplied
from eab.engine.compiled.tiles import Tile, Weights, vectors
from eab.weight_formats import LARGEST_INT8


class Float32Weights(Weights):
    """Float32 weights.

    An output is the sum of partial sums over `partial` inputs each, so rounding errors stay small,
    and the weights of these inputs stay in the processor's cache while all rows are multiplied by
    them.
    """

    tile = Tile(rows=10, vectors=2) if WIDE else Tile(rows=6, vectors=2)
    block = tile.outputs
    dtype = torch.float32
    step_bytes = block * dtype.itemsize
    partial = 256

    def fits(self, weight: Tensor, inputs: int) -> bool:
        return weight.shape[1:] == (inputs, self.block)

    @classmethod
    def pack(cls, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """weight (out, in) and bias (out,) -> (blocks, in, block) and (blocks, block), with zeros
        where the last block is not full.
        """
        compile_now(FLOAT32)
        inputs, missing = weight.shape[1], -len(weight) % cls.block
        if missing:
            weight = functional.pad(weight, (0, 0, 0, missing))
            bias = None if bias is None else functional.pad(bias, (0, missing))
        blocks = weight.reshape(-1, cls.block, inputs).transpose(1, 2)
        return blocks.contiguous(), None if bias is None else bias.reshape(-1, cls.block)

    @classmethod
    def columns(cls, weight: Tensor, outputs: Tensor) -> Tensor:
        """The weights of these outputs (...) in what `pack` made: (..., in)."""
        return weight[outputs // cls.block, :, outputs % cls.block]

    @staticmethod
    def part(weight: Tensor, bias: Tensor | None) -> Part:
        """What `pack` made, as a part of a product."""
        return Part(FLOAT32, weight, None, bias)

    @classmethod
    def product(cls, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x (..., in) float32 times what `pack` made: (..., blocks * block) float32."""
        return multiplied(x, cls.part(weight, bias))


FLOAT32: Final = Float32Weights()

_SHIFT: Final = 128
_QUAD: Final = 4  # neighbouring inputs, whose products are added by one instruction
_TAIL: Final = 8  # bytes after a rounded row: its scale, float32, and the sum of its integers


class Int8Weights(Weights):
    """Eight-bit integers with a scale for each output, by the instruction `vpdpbusd` of AVX-512
    VNNI; rows are rounded as `quantize_rows` does.

    The instruction multiplies 64 unsigned by 64 signed bytes, and adds four neighbouring products
    to each of 16 sums of 32 bits. The weights are made unsigned by adding 128; in the end, 128
    times the sum of the inputs is subtracted. The sums are exact, so the order of the additions
    does not matter.
    """

    tile = Tile(rows=6, vectors=4)
    block = tile.outputs
    dtype = torch.uint8
    step_bytes = block * _QUAD
    vector = INTEGERS

    def fits(self, weight: Tensor, inputs: int) -> bool:
        return weight.shape[1:] == (self.steps(inputs), self.block, _QUAD)

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
        scales = vectors(code, constants, FLOATS, self.tile.vectors)
        scaled = [code.fmul(value, scale) for value, scale in zip(floats, scales, strict=True)]
        return [code.fmul(value, row_scale) for value in scaled]

    @classmethod
    def pack(cls, integers: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """integers (out, in) int8 and scale (out,) -> (blocks, in / 4, block, 4) uint8 and
        (blocks, block), with zeros where the last block is not full.
        """
        compile_now(INT8)
        outputs, inputs = integers.shape
        missing = -outputs % cls.block
        whole = functional.pad(integers, (0, -inputs % _QUAD, 0, missing))
        shifted = whole.view(torch.uint8) + _SHIFT  # modulo 256
        blocks = shifted.view(-1, cls.block, whole.shape[1] // _QUAD, _QUAD).transpose(1, 2)
        return blocks.contiguous(), functional.pad(scale, (0, missing)).view(-1, cls.block)

    @staticmethod
    def part(weight: Tensor, scale: Tensor, bias: Tensor | None) -> Part:
        """What `pack` made, as a part of a product."""
        return Part(INT8, weight, scale, bias)

    @classmethod
    def product(cls, rows: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        """rows (R, in) float32 times what `pack` made: (R, blocks * block) float32."""
        return multiplied(rows, cls.part(weight, scale, None))


INT8: Final = Int8Weights()


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


_HALVES: Final = ir.VectorType(ir.IntType(16), LANES)
_BYTES: Final = ir.VectorType(BYTE, LANES)


@dataclass(frozen=True)
class Int4Weights(Weights):
    """Four-bit integers with a scale and a zero for each group of this many inputs, with the bits
    of PyTorch's operator `_weight_int4pack_mm_for_cpu`. Needs AVX-512.

    An input is rounded to bfloat16; a weight is (integer - 8) * scale + zero in float32; products
    are added in the order of the inputs; the sum is rounded to bfloat16.
    """

    group: int
    tile = Tile(rows=10, vectors=2)
    block = tile.outputs
    dtype = torch.uint8
    dtype_of_constants = torch.bfloat16
    step_bytes = block // 2

    def fits(self, weight: Tensor, inputs: int) -> bool:
        is_packed = weight.shape[1:] == (inputs, self.block // 2)
        return is_packed and self.group % LANES == inputs % self.group == 0

    def rounded_bytes(self, inputs: int) -> int:
        return inputs * FLOAT_BYTES

    def write_rounding(self, module: Any) -> None:
        kinds = [POINTER, INT64, POINTER, INT64]
        code, (row, inputs, rounded, _) = function(module, "round_row", kinds)
        with counting(code, number(0), inputs, number(LANES)) as index:
            store(code, rounded_to_bfloat16(code, load(code, row, index)), rounded, index)
        code.ret_void()

    @contextmanager
    def stepping(
        self, code: Any, weight: Any, constants: Any, ahead: tuple[Any, Any], steps: Any
    ) -> Iterator[tuple[Any, list[Any]]]:
        """Nothing is fetched ahead: decoding takes longer than reading."""
        size, count = number(self.group), self.tile.vectors
        with counting(code, number(0), code.sdiv(steps, size), number(1)) as group:
            place = code.mul(group, number(2 * count))
            ours = [
                _floats(code, constants, code.add(place, number(at))) for at in range(2 * count)
            ]
            first = code.mul(group, size)
            with counting(code, first, code.add(first, size), number(1)) as index:
                line = element(code, weight, BYTE, code.mul(index, number(self.step_bytes)))
                yield index, _weights(code, line, ours[:count], ours[count:])

    def outputs(self, code: Any, sums: list[Any], tail: Any, constants: Any) -> list[Any]:
        return [rounded_to_bfloat16(code, total) for total in sums]

    @classmethod
    def pack(cls, integers: Tensor, scale: Tensor, zero: Tensor) -> tuple[Tensor, Tensor]:
        """Integers from 0 to 15, (out, in), and scale and zero, (out, in / group) bfloat16, ->
        (blocks, in, block / 2) uint8 and (blocks, in / group, 2, block) bfloat16, with zeros where
        the last block is not full.

        The lower half of a byte belongs to an output, the upper half to the one block / 2 later.
        """
        outputs, inputs = integers.shape
        groups, missing = scale.shape[1], -outputs % cls.block
        compile_now(cls(inputs // groups))
        integers, scale, zero = (
            functional.pad(x, (0, 0, 0, missing)) for x in (integers, scale, zero)
        )
        by_block = integers.to(torch.uint8).view(-1, cls.block, inputs).transpose(1, 2)
        low, high = by_block.chunk(2, dim=-1)
        constants = torch.stack([scale, zero]).view(2, -1, cls.block, groups).permute(1, 3, 0, 2)
        return (low | high << 4).contiguous(), constants.contiguous()

    @classmethod
    def part(cls, weight: Tensor, constants: Tensor, bias: Tensor | None) -> Part:
        """What `pack` made, as a part of a product."""
        return Part(cls(weight.shape[1] // constants.shape[1]), weight, constants, bias)

    @classmethod
    def product(cls, rows: Tensor, weight: Tensor, constants: Tensor) -> Tensor:
        """rows (R, in) float32 times what `pack` made: (R, blocks * block) float32."""
        return multiplied(rows, cls.part(weight, constants, None))


def _floats(code: Any, halves: Any, index: Any) -> Any:
    """A vector of an array of bfloat16 as floats."""
    halves = code.load(element(code, halves, _HALVES, index), typ=_HALVES, align=2)
    return code.bitcast(code.shl(code.zext(halves, INTEGERS), constant_integer(16)), FLOATS)


def _weights(code: Any, line: Any, scales: list[Any], zeros: list[Any]) -> list[Any]:
    """The weights of a block for one input, as vectors."""
    places = [element(code, line, _BYTES, number(index)) for index in range(len(scales) // 2)]
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
