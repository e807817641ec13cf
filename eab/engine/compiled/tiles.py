"""Matrix products in tiles, for any kind of weights.

A tile is the product of a few rows with a block of outputs. Its sums stay in registers while the
weights of the block are read once, step by step, in the order in which they are stored. Threads
share the blocks. An output is added up in the same order however many rows there are.

If the rows need several tiles, the first one waits for memory, and the others find the weights in
the processor's cache. So each of them fetches a share of the weights that come next.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from llvmlite import ir
from torch import Tensor

from eab.engine.compiled.llvm_code import (
    BYTE,
    FLOAT,
    FLOATS,
    INT32,
    INT64,
    LANES,
    POINTER,
    VOID,
    call,
    counting,
    element,
    function,
    multiply_add,
    number,
    repeated,
    variable,
)

_READ, _LEVEL, _DATA = 0, 1, 1  # how to fetch: to read, into an outer cache, data
_LINE_BYTES: Final = 64
_LINES_FETCHED: Final = 2  # per step, at most
_INPUT_BYTES: Final = 4  # of a row in a step: a float, or four integers


@dataclass(frozen=True)
class Tile:
    """The size of the largest tile: its sums take `rows` times `vectors` registers, of the 32 of
    AVX-512 or the 16 of AVX2. The more rows, the less often weights are read and decoded.
    """

    rows: int
    vectors: int

    @property
    def outputs(self) -> int:
        """Of a block."""
        return LANES * self.vectors


class Weights(ABC):
    """A kind of weights: how they are stored, and the code that multiplies rows by them. What is
    not abstract is as for float32.
    """

    tile: Tile
    dtype: torch.dtype
    dtype_of_constants: torch.dtype = torch.float32
    step_bytes: int  # of the weights of a block that are read in a step
    partial: int = 0  # steps whose sum is stored before the next ones are added; 0: all
    vector: Any = FLOATS  # the type of sums and weights

    @abstractmethod
    def fits(self, weight: Tensor, inputs: int) -> bool:
        """Whether a stored weight has this many inputs."""

    def steps(self, inputs: int) -> int:
        """In how many steps a tile reads its rows."""
        return inputs

    def rounded_bytes(self, inputs: int) -> int:
        """Bytes of a rounded row; 0 if rows are not rounded."""
        return 0

    def write_rounding(self, module: Any) -> None:
        """`round_row`, if rows are rounded: a row, its inputs, where to, for how many steps."""
        raise NotImplementedError

    @contextmanager
    def stepping(
        self, code: Any, weight: Any, constants: Any, ahead: tuple[Any, Any], steps: Any
    ) -> Iterator[tuple[Any, list[Any]]]:
        """A loop over steps; gives the index and the weights. `ahead` is what to fetch."""
        with counting(code, number(0), steps, number(1)) as index:
            place = element(code, weight, BYTE, code.mul(index, number(self.step_bytes)))
            weights = vectors(code, place, self.vector, self.tile.vectors)
            fetch_ahead(code, *ahead, index)
            yield index, weights

    def read(self, code: Any, place: Any) -> Any:
        """What a row has for a step, in all lanes of a vector."""
        return repeated(code, code.load(place, typ=FLOAT))

    def add_product(self, code: Any, total: Any, weights: Any, inputs: Any) -> Any:
        """A sum, with the product of these vectors added."""
        return multiply_add(code, inputs, weights, total)

    def outputs(self, code: Any, sums: list[Any], tail: Any, constants: Any) -> list[Any]:
        """The outputs of these sums; `tail` is where the row ends."""
        return sums


def share(code: Any, total: Any, this: Any, count: Any) -> tuple[Any, Any]:
    """Where part `this` of `count` nearly equal parts of a total begins and ends."""
    first = code.sdiv(code.mul(total, this), count)
    return first, code.sdiv(code.mul(total, code.add(this, number(1))), count)


@dataclass(frozen=True, slots=True)
class TileCall:
    """One of the tiles of some rows, as values of the code."""

    row: Any  # the first one
    index: Any
    count: Any

    def ahead(self, code: Any, weight: Any, steps: Any, step_bytes: int) -> list[Any]:
        """What `fetch_ahead` is to fetch while the tile takes these steps: the address of a share
        of the weights that follow, and its bytes per step. An only tile fetches nothing new.
        """
        is_only = code.icmp_signed("==", self.count, number(1))
        share = code.sdiv(number(step_bytes), self.count)
        shift = code.mul(steps, code.add(number(step_bytes), code.mul(self.index, share)))
        return [
            element(code, weight, BYTE, code.select(is_only, number(0), shift)),
            code.select(is_only, number(0), share),
        ]


def fetch_ahead(code: Any, place: Any, share: Any, step: Any) -> None:
    """Fetch what `TileCall.ahead` says for this step, without waiting for it."""
    at = element(code, place, BYTE, code.mul(step, share))
    for line in range(_LINES_FETCHED):
        hints = (ir.Constant(INT32, value) for value in (_READ, _LEVEL, _DATA))
        operands = [element(code, at, BYTE, number(line * _LINE_BYTES)), *hints]
        call(code, "llvm.prefetch.p0", VOID, operands)


def call_tiles(
    code: Any, tile: Tile, count: Any, operands: Callable[[TileCall], list[Any]]
) -> None:
    """Call the tiles of `count` rows, as few as possible and of about the same size."""
    calls = code.sdiv(code.add(count, number(tile.rows - 1)), number(tile.rows))
    with counting(code, number(0), calls, number(1)) as index:
        row, end = share(code, count, index, calls)
        given = operands(TileCall(row, index, calls))
        done, most = code.append_basic_block(), code.append_basic_block()
        choice = code.switch(code.sub(end, row), most)
        for rows in range(1, tile.rows + 1):
            block = most if rows == tile.rows else code.append_basic_block()
            if rows < tile.rows:
                choice.add_case(number(rows), block)
            code.position_at_end(block)
            call(code, f"tile_of_{rows}", VOID, given)
            code.branch(done)
        code.position_at_end(done)


def vectors(code: Any, place: Any, kind: Any, count: int) -> list[Any]:
    """The vectors that begin here."""
    places = [element(code, place, kind, number(vector)) for vector in range(count)]
    return [code.load(place, typ=kind, align=4) for place in places]


def write_tile(module: Any, kind: Weights, rows: int) -> None:
    """`tile_of_ROWS`: add the products of some steps to what came before."""
    places = [POINTER, INT64] * 3
    code, given = function(module, f"tile_of_{rows}", [*places, POINTER, *[POINTER, INT64] * 2])
    row, stride, weight, steps, ahead, share, constants, added, added_stride, out, outputs = given
    zero, count = ir.Constant(kind.vector, None), kind.tile.vectors
    sums = [[variable(code, zero) for _ in range(count)] for _ in range(rows)]
    starts = [element(code, row, BYTE, code.mul(stride, number(index))) for index in range(rows)]
    with kind.stepping(code, weight, constants, (ahead, share), steps) as (step, weights):
        for start, row_sums in zip(starts, sums, strict=True):
            inputs = kind.read(code, element(code, start, INT32, step))
            for factor, total in zip(weights, row_sums, strict=True):
                known = code.load(total, typ=kind.vector)
                code.store(kind.add_product(code, known, factor, inputs), total)
    for index, (start, row_sums) in enumerate(zip(starts, sums, strict=True)):
        found = [code.load(total, typ=kind.vector) for total in row_sums]
        values = kind.outputs(code, found, element(code, start, INT32, steps), constants)
        before = element(code, added, FLOAT, code.mul(added_stride, number(index)))
        line = element(code, out, FLOAT, code.mul(outputs, number(index)))
        for at, known in enumerate(vectors(code, before, FLOATS, count)):
            target = element(code, line, FLOATS, number(at))
            code.store(code.fadd(values[at], known), target, align=4)
    code.ret_void()


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows that tiles multiply, as values of the code."""

    first: Any
    stride: Any  # in bytes
    count: Any
    steps: Any


@dataclass(frozen=True, slots=True)
class Block:
    """A block of outputs and what makes it, as values of the code: addresses, strides in floats."""

    weight: Any
    constants: Any
    added: Any  # a bias or the residual
    added_stride: Any
    out: Any
    out_stride: Any


def write_block(code: Any, kind: Weights, rows: Rows, block: Block) -> None:
    """Multiply the rows by the weights of a block."""
    part = number(kind.partial) if kind.partial else rows.steps
    with counting(code, number(0), rows.steps, part) as start:
        left = code.sub(rows.steps, start)
        steps = code.select(code.icmp_signed("<", left, part), left, part)
        weight = element(code, block.weight, BYTE, code.mul(start, number(kind.step_bytes)))
        is_first = code.icmp_signed("==", start, number(0))

        def operands(tile: TileCall) -> list[Any]:
            line = element(code, block.out, FLOAT, code.mul(tile.row, block.out_stride))
            added = element(code, block.added, FLOAT, code.mul(tile.row, block.added_stride))
            skipped = code.mul(start, number(_INPUT_BYTES))
            return [
                element(code, rows.first, BYTE, code.add(code.mul(tile.row, rows.stride), skipped)),
                rows.stride,
                weight,
                steps,
                *tile.ahead(code, weight, steps, kind.step_bytes),
                block.constants,
                code.select(is_first, added, line),
                code.select(is_first, block.added_stride, block.out_stride),
                line,
                block.out_stride,
            ]

        call_tiles(code, kind.tile, rows.count, operands)
