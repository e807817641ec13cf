"""Attention of a few tokens, each over its own list of rows, in float32.

A unit of work is one token and one KV head. It reads its rows `BATCH` at a time: the scores of a
query, their exponentials relative to the largest score so far, and the sum of the values weighted
by them, which is rescaled when a larger score is found (Milakov and Gimelshein, arXiv 1805.02867).
Threads take the units in turn. The result of a token depends only on its own rows and their order,
not on the other tokens.
"""

from functools import cache
from typing import Any, Final

from llvmlite import ir
from torch import Tensor, int64

from eab.engine.compiled.llvm_code import (
    FLOAT,
    FLOATS,
    INT32,
    INT64,
    LANES,
    POINTER,
    VOID,
    WORK,
    Parallel,
    add,
    address,
    array,
    as_float,
    bits_of,
    call,
    constant,
    counting,
    element,
    exponential,
    function,
    input_address,
    integers,
    larger,
    load,
    multiply_add,
    number,
    over_lanes,
    repeated,
    store,
    sums_of_lanes,
    variable,
)

BATCH: Final = 64  # rows
MOST: Final = 256  # numbers of a head, whose sums are then in the registers with AVX-512
_SUMS: Final = 16 if LANES == 16 else 8  # vectors of summed values in registers: half of all
_STATE: Final = 3  # numbers kept for a query: largest score, sum of exponentials, rescaling


def can_attend(head_dim: int) -> bool:
    """Whether heads of this size consist of whole vectors, and are not unusually large."""
    return head_dim % LANES == 0 and head_dim <= MOST


def attend(
    query: Tensor, keys: Tensor, values: Tensor, rows: Tensor, starts: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention of tokens over rows; letters as in `eab.engine.caches.base`.

    Args:
        query: (H, T, D).
        keys, values: (G, C, D).
        rows: The rows that each token sees, token after token, (n,) int64; at least one for each.
        starts: Where those of each token start, and n, (T + 1,) int64.

    Returns:
        The output, (T, H, D), and the log-sum-exp of the scores, (T, H).
    """
    heads, tokens, size = query.shape
    groups = keys.shape[0]
    query = query if query.stride(2) == 1 else query.contiguous()
    out, lse = query.new_empty((tokens, heads, size)), query.new_empty((tokens, heads))
    _compiled(size, heads // groups)(
        0,
        tokens * groups,
        groups,
        input_address(query),
        query.stride(0),
        query.stride(1),
        address(keys),
        address(values),
        keys.stride(0),
        address(rows, int64),
        address(starts, int64),
        out.data_ptr(),
        lse.data_ptr(),
        bits_of(scale),
        shares=tokens * groups,
    )
    return out, lse


@cache
def _compiled(size: int, group: int) -> Parallel:
    module = ir.Module()
    most = max(1, _SUMS * LANES // size)
    parts = [range(first, min(first + most, group)) for first in range(0, group, most)]
    _write_scores(module, size)
    _write_weights(module)
    for queries in {len(part) for part in parts}:
        _write_values(module, size, queries)
    _write_unit(module, size, parts)
    _write_work(module, size, group)
    return Parallel(module)


def _write_work(module: Any, size: int, group: int) -> None:
    code, [arguments] = function(module, WORK, [POINTER])
    given = integers(code, arguments, 14)
    units, groups, query, head_stride, token_stride, keys, values, group_stride = given[1:9]
    rows, starts, out, lse = (code.inttoptr(value, POINTER) for value in given[9:13])
    query, keys, values = (code.inttoptr(value, POINTER) for value in (query, keys, values))
    scale = as_float(code, given[13])
    scores = array(code, FLOAT, group * BATCH)
    states = array(code, FLOAT, group * _STATE)
    take, work, done = (code.append_basic_block() for _ in range(3))
    code.branch(take)
    code.position_at_end(take)
    unit = code.atomic_rmw("add", arguments, number(1), "monotonic")
    code.cbranch(code.icmp_signed("<", unit, units), work, done)
    code.position_at_end(work)
    token, kv_head = code.sdiv(unit, groups), code.srem(unit, groups)
    start, end = (
        code.load(element(code, starts, INT64, code.add(token, number(step))), typ=INT64)
        for step in (0, 1)
    )
    head, shift = code.mul(kv_head, number(group)), code.mul(kv_head, group_stride)
    line = code.add(code.mul(code.mul(token, groups), number(group)), head)
    place = code.add(code.mul(head, head_stride), code.mul(token, token_stride))
    operands = [
        element(code, query, FLOAT, place),
        head_stride,
        element(code, keys, FLOAT, shift),
        element(code, values, FLOAT, shift),
        element(code, rows, INT64, start),
        code.sub(end, start),
        scale,
        element(code, out, FLOAT, code.mul(line, number(size))),
        element(code, lse, FLOAT, line),
        scores,
        states,
    ]
    call(code, "unit", VOID, operands)
    code.branch(take)
    code.position_at_end(done)
    code.ret_void()


def _write_unit(module: Any, size: int, parts: list[range]) -> None:
    """Attention of the queries of one token and one KV head, as many at once as fit."""
    kinds = [POINTER, INT64, POINTER, POINTER, POINTER, INT64, FLOAT, *[POINTER] * 4]
    code, given = function(module, "unit", kinds)
    query, head_stride, keys, values, rows, count, scale, out, lse, scores, states = given
    infinity = ir.Constant(FLOAT, float("-inf"))
    for part in parts:
        line = element(code, out, FLOAT, number(part.start * size))
        for index in range(len(part)):
            state = element(code, states, FLOAT, number(index * _STATE))
            code.store(infinity, state)
            code.store(ir.Constant(FLOAT, 0.0), element(code, state, FLOAT, number(1)))
        with counting(code, number(0), number(len(part) * size), number(LANES)) as index:
            store(code, constant(0.0), line, index)
        with counting(code, number(0), count, number(BATCH)) as first:
            left, ours = code.sub(count, first), element(code, rows, INT64, first)
            some = code.select(code.icmp_signed("<", left, number(BATCH)), left, number(BATCH))
            with counting(code, number(0), number(len(part)), number(1)) as index:
                head = code.add(index, number(part.start))
                asking = element(code, query, FLOAT, code.mul(head, head_stride))
                own_scores = element(code, scores, FLOAT, code.mul(index, number(BATCH)))
                state = element(code, states, FLOAT, code.mul(index, number(_STATE)))
                call(code, "scores", VOID, [asking, keys, ours, some, scale, own_scores])
                call(code, "weights", VOID, [own_scores, some, state])
            call(code, f"values_of_{len(part)}", VOID, [scores, values, ours, some, states, line])
        for index in range(len(part)):
            state = element(code, states, FLOAT, number(index * _STATE))
            largest = code.load(state, typ=FLOAT)
            total = code.load(element(code, state, FLOAT, number(1)), typ=FLOAT)
            logarithm = call(code, "llvm.log.f32", FLOAT, [total])
            target = element(code, lse, FLOAT, number(part.start + index))
            code.store(code.fadd(largest, logarithm), target)
            factor = repeated(code, code.fdiv(ir.Constant(FLOAT, 1.0), total))
            row = element(code, line, FLOAT, number(index * size))
            with counting(code, number(0), number(size), number(LANES)) as lane:
                store(code, code.fmul(load(code, row, lane), factor), row, lane)
    code.ret_void()


def _write_scores(module: Any, size: int) -> None:
    """The scores of one query with up to BATCH rows; minus infinity up to a whole vector."""
    kinds = [POINTER, POINTER, POINTER, INT64, FLOAT, POINTER]
    code, given = function(module, "scores", kinds, inline=False)
    query, keys, rows, count, scale, out = given
    steps = [number(step) for step in range(0, size, LANES)]
    factor = repeated(code, scale)
    asking = [code.fmul(load(code, query, step), factor) for step in steps]
    last = code.sub(count, number(1))
    with counting(code, number(0), count, number(LANES)) as first:
        products = []
        for lane in range(LANES):
            index = code.add(first, number(lane))
            index = code.select(code.icmp_signed("<", index, last), index, last)
            key = _row(code, keys, rows, index, size)
            total = code.fmul(load(code, key, steps[0]), asking[0])
            for step, part in zip(steps[1:], asking[1:], strict=True):
                total = multiply_add(code, load(code, key, step), part, total)
            products.append(total)
        sums = sums_of_lanes(code, products)
        lanes = ir.Constant(ir.VectorType(INT64, LANES), [*range(LANES)])
        left = repeated(code, code.sub(count, first), ir.VectorType(INT64, LANES))
        is_row = code.icmp_signed("<", lanes, left)
        none = constant(float("-inf"))
        store(code, code.select(is_row, sums, none), out, first)
    code.ret_void()


def _write_weights(module: Any) -> None:
    """Replace scores by their exponentials relative to the largest one so far, and note in the
    state how to rescale what was summed before.
    """
    code, given = function(module, "weights", [POINTER, INT64, POINTER], inline=False)
    scores, count, state = given
    before = code.load(state, typ=FLOAT)
    largest = variable(code, repeated(code, before))
    with counting(code, number(0), count, number(LANES)) as first:
        value = larger(code, code.load(largest, typ=FLOATS), load(code, scores, first))
        code.store(value, largest)
    top = over_lanes(code, code.load(largest, typ=FLOATS), larger)
    # If all scores are minus infinity, their exponentials are 0.
    is_finite = code.fcmp_unordered("!=", top, ir.Constant(FLOAT, float("-inf")))
    base = code.select(is_finite, top, ir.Constant(FLOAT, 0.0))
    total = variable(code, constant(0.0))
    with counting(code, number(0), count, number(LANES)) as first:
        weight = exponential(code, code.fsub(load(code, scores, first), repeated(code, base)))
        store(code, weight, scores, first)
        code.store(code.fadd(code.load(total, typ=FLOATS), weight), total)
    change = exponential(code, repeated(code, code.fsub(before, base)))
    factor = code.extract_element(change, ir.Constant(INT32, 0))
    place = element(code, state, FLOAT, number(1))
    more = over_lanes(code, code.load(total, typ=FLOATS), add)
    known = code.fmul(code.load(place, typ=FLOAT), factor)
    code.store(code.fadd(known, more), place)
    code.store(top, state)
    code.store(factor, element(code, state, FLOAT, number(2)))
    code.ret_void()


def _write_values(module: Any, size: int, queries: int) -> None:
    """Rescale the sums of these queries, and add the values of up to BATCH rows."""
    kinds = [POINTER, POINTER, POINTER, INT64, POINTER, POINTER]
    code, given = function(module, f"values_of_{queries}", kinds, inline=False)
    weights, values, rows, count, states, out = given
    steps = [number(step) for step in range(0, size, LANES)]
    lines = [element(code, out, FLOAT, number(query * size)) for query in range(queries)]
    sums = []
    for query, line in enumerate(lines):
        place = element(code, states, FLOAT, number(query * _STATE + 2))
        factor = repeated(code, code.load(place, typ=FLOAT))
        sums.append([variable(code, code.fmul(load(code, line, step), factor)) for step in steps])
    with counting(code, number(0), count, number(1)) as index:
        row = _row(code, values, rows, index, size)
        numbers = [load(code, row, step) for step in steps]
        for query, own in enumerate(sums):
            place = element(code, weights, FLOAT, code.add(index, number(query * BATCH)))
            weight = repeated(code, code.load(place, typ=FLOAT))
            for value, total in zip(numbers, own, strict=True):
                code.store(multiply_add(code, value, weight, code.load(total, typ=FLOATS)), total)
    for line, own in zip(lines, sums, strict=True):
        for step, total in zip(steps, own, strict=True):
            store(code, code.load(total, typ=FLOATS), line, step)
    code.ret_void()


def _row(code: Any, rows: Any, numbers: Any, index: Any, size: int) -> Any:
    """The address of the row whose number is at this index of the list."""
    row = code.load(element(code, numbers, INT64, index), typ=INT64)
    return element(code, rows, FLOAT, code.mul(row, number(size)))
