"""Four-bit weights in tiles, with the bits of PyTorch's operator `_weight_int4pack_mm_for_cpu`.

An input is rounded to bfloat16; a weight is (integer - 8) * scale + zero in float32; products are
added in the order of the inputs; the sum is rounded to bfloat16. Needs AVX-512.
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
    FLOATS,
    INT64,
    INTEGERS,
    LANES,
    POINTER,
    call,
    constant_integer,
    counting,
    element,
    function,
    load,
    multiply_add,
    number,
    rounded_to_bfloat16,
    store,
)
from eab.engine.compiled.products import FLOAT_BYTES, Part, compile_now, multiplied
from eab.engine.compiled.tiles import Tile, Weights

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
    step_bytes = BLOCK // 2

    def fits(self, weight: Tensor, inputs: int) -> bool:
        is_packed = weight.shape[1:] == (inputs, BLOCK // 2)
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
        size, count = number(self.group), TILE.vectors
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
    return multiplied(rows, part(weight, constants, None))


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
