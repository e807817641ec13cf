"""What matrix products in tiles have in common.

A tile is the product of a few rows with a block of outputs. Its sums stay in registers while the
weights of the block are read once, in the order in which they are stored. Threads share the blocks.
An output is added up in the same order however many rows there are.

If the rows need several tiles, the first one waits for memory, and the others find the weights in
the processor's cache. So each of them fetches a share of the weights that come next.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from llvmlite import ir

from eab.compiled.llvm_code import (
    BYTE,
    INT32,
    VOID,
    call,
    counting,
    element,
    number,
    variable,
)
from eab.compiled.vectors import FLOATS, LANES

_READ, _LEVEL, _DATA = 0, 1, 1  # how to fetch: to read, into an outer cache, data
_LINE_BYTES: Final = 64
_LINES_FETCHED: Final = 2  # per step, at most


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
