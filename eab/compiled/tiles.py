"""What matrix products in tiles have in common.

A tile is the product of a few rows with a block of outputs. Its sums stay in registers while the
weights of the block are read once, in the order in which they are stored. Threads share the blocks.
An output is added up in the same order however many rows there are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eab.compiled.llvm_code import (
    VOID,
    call,
    counting,
    element,
    number,
    variable,
)
from eab.compiled.vectors import FLOATS, LANES


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


def share(code: Any, total: Any, this: Any, count: Any) -> tuple[Any, Any]:
    """Where part `this` of `count` nearly equal parts of a total begins and ends."""
    first = code.sdiv(code.mul(total, this), count)
    return first, code.sdiv(code.mul(total, code.add(this, number(1))), count)


def call_tiles(code: Any, tile: Tile, count: Any, operands: Callable[[Any], list[Any]]) -> None:
    """Call the tiles of `count` rows, as few as possible and of about the same size, each with the
    operands for its first row.
    """
    calls = code.sdiv(code.add(count, number(tile.rows - 1)), number(tile.rows))
    with counting(code, number(0), calls, number(1)) as index:
        row, end = share(code, count, index, calls)
        given = operands(row)
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


def new_sums(code: Any, rows: int, vectors: int, zero: Any) -> list[list[Any]]:
    """The sums of a tile, by row and vector."""
    return [[variable(code, zero) for _ in range(vectors)] for _ in range(rows)]


def vectors(code: Any, place: Any, kind: Any, count: int) -> list[Any]:
    """The vectors that begin here."""
    places = [element(code, place, kind, number(vector)) for vector in range(count)]
    return [code.load(place, typ=kind, align=4) for place in places]


def store_outputs(code: Any, values: list[Any], added: Any, line: Any) -> None:
    """Store the vectors of a row's outputs, plus those that begin at `added`, from `line` on."""
    plus = vectors(code, added, FLOATS, len(values))
    for vector, (value, known) in enumerate(zip(values, plus, strict=True)):
        target = element(code, line, FLOATS, number(vector))
        code.store(code.fadd(value, known), target, align=4)
