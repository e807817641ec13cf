"""Float32 weights in tiles.

An output is the sum of partial sums over `PART` inputs each, so rounding errors stay small, and the
weights of a part stay in the processor's cache while all rows are multiplied by them.
"""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from eab.engine.compiled.llvm_code import WIDE
from eab.engine.compiled.products import Part, compile_now, multiplied
from eab.engine.compiled.tiles import Tile, Weights

PART: Final = 256
TILE: Final = Tile(rows=10, vectors=2) if WIDE else Tile(rows=6, vectors=2)
BLOCK: Final = TILE.outputs


class Float32Weights(Weights):
    """Weights as `pack` stores them."""

    tile = TILE
    dtype = torch.float32
    step_bytes = BLOCK * dtype.itemsize
    part = PART

    def fits(self, weight: Tensor, inputs: int) -> bool:
        return weight.shape[1:] == (inputs, BLOCK)


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
    return multiplied(x, part(weight, bias))
