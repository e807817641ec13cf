"""What matrix products in tiles have in common.

A tile is the product of up to `ROWS` rows with a block of `BLOCK` outputs. Its sums stay in
registers while the weights of the block are read once, in the order in which they are stored: 24
vectors of 16 sums, of the 32 registers of AVX-512, or 12 vectors of 8, of the 16 of AVX2. Threads
share the blocks. An output is added up in the same order however many rows there are.
"""

from collections.abc import Callable
from typing import Any, Final

from eab.compiled.llvm_code import (
    VOID,
    call,
    counting,
    element,
    number,
    threads,
    variable,
)
from eab.compiled.vectors import FLOATS, LANES, WIDE

ROWS: Final = 6
VECTORS: Final = 4 if WIDE else 2
BLOCK: Final = LANES * VECTORS


def share_of_thread(code: Any, blocks: Any) -> tuple[Any, Any]:
    """The first block of this thread, and the one after its last."""
    this, count = threads(code)
    first = code.sdiv(code.mul(blocks, this), count)
    return first, code.sdiv(code.mul(blocks, code.add(this, number(1))), count)


def call_tiles(code: Any, count: Any, operands: Callable[[Any], list[Any]]) -> None:
    """Call `tile_of_6` for six rows at a time, with the operands for the first of them, and at the
    end the tile of as many as are left.
    """
    with counting(code, number(0), count, number(ROWS)) as row:
        given = operands(row)
        done, most = code.append_basic_block(), code.append_basic_block()
        choice = code.switch(code.sub(count, row), most)
        for rows in range(1, ROWS + 1):
            block = most if rows == ROWS else code.append_basic_block()
            if rows < ROWS:
                choice.add_case(number(rows), block)
            code.position_at_end(block)
            call(code, f"tile_of_{rows}", VOID, given)
            code.branch(done)
        code.position_at_end(done)


def new_sums(code: Any, rows: int, zero: Any) -> list[list[Any]]:
    """The sums of a tile, by row and vector."""
    return [[variable(code, zero) for _ in range(VECTORS)] for _ in range(rows)]


def vectors(code: Any, place: Any, kind: Any) -> list[Any]:
    """The vectors of a block that begins here."""
    places = [element(code, place, kind, number(vector)) for vector in range(VECTORS)]
    return [code.load(place, typ=kind, align=4) for place in places]


def store_outputs(code: Any, values: list[Any], added: Any, line: Any) -> None:
    """Store the vectors of a row's outputs, plus those that begin at `added`, from `line` on."""
    for vector, (value, known) in enumerate(zip(values, vectors(code, added, FLOATS), strict=True)):
        target = element(code, line, FLOATS, number(vector))
        code.store(code.fadd(value, known), target, align=4)
