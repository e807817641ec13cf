"""The assignment `cache`: a KV cache whose attention equals that of recomputing the whole texts,
and which reports the bytes that it holds.

The K and V of a token depend on its id and position only, so a cache can receive them once, or
again with the whole text.
"""

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from types import FunctionType, ModuleType
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from eab.engine.caches.base import KVCache
from eab.engine.caches.baselines import Recompute
from eab.engine.caches.shape import KVShape
from eab.formatting import counted
from eab.lessons.checks import Fault, Property

NEEDS: Final = {"MyCache": KVCache}
LAYERS, HEADS, GROUPS, SIZE, VOCAB, LONGEST = 2, 6, 2, 16, 12, 30
SHAPE: Final = KVShape(
    LAYERS, GROUPS, SIZE, torch.float64, torch.device("cpu"), group=HEADS // GROUPS
)
SCALE: Final = SIZE**-0.5
ROOM: Final = 2**30  # bytes that a cache may hold
EXACT: Final = 1e-10  # rounding in float64 makes smaller differences
SEQUENCES, MOST_CALLS, MAX_PATHS = 120, 14, 6

_numbers = torch.Generator().manual_seed(1)
QUERIES, KEYS, VALUES = (
    torch.randn((LAYERS, LONGEST, VOCAB, heads, SIZE), dtype=torch.float64, generator=_numbers)
    for heads in (HEADS, GROUPS, GROUPS)
)

Call: TypeAlias = tuple[str, tuple[Any, ...]]  # the name of a method of KVCache, its arguments
Lengths: TypeAlias = dict[int, int]  # the number of tokens of each live path
Outputs: TypeAlias = list[list[Tensor]]  # (T, H, D) for each layer and path


def attend_all(
    cache: KVCache,
    paths: Sequence[int],
    new: Sequence[Sequence[int]],
    dtype: torch.dtype = SHAPE.dtype,
) -> Outputs:
    """The attention output of the new tokens, (T, H, D), for each layer and path in one batch."""
    batch = cache.prepare(paths, new)
    outputs = []
    for layer in range(LAYERS):
        query, key, value = (
            table[layer][batch.positions, batch.ids].transpose(0, 1)[None].to(dtype)
            for table in (QUERIES, KEYS, VALUES)
        )
        out = cache.attend(layer, query, key, value, SCALE)[0]
        ends = (batch.logits_indices + 1).tolist()
        outputs.append(
            [out[end - len(tokens) : end] for end, tokens in zip(ends, new, strict=True)]
        )
    return outputs


def properties(student: ModuleType, seed: int) -> Iterator[Property]:
    """What is checked, on sequences of random calls, the shortest first."""
    draws, held = random.Random(seed), [0, 0]  # bytes after all calls, and of separate caches
    sequences = [_sequence(draws, 2 + one * MOST_CALLS // SEQUENCES) for one in range(SEQUENCES)]

    def equal(calls: list[Call]) -> None:
        both = (_replay(make, calls) for make in (student.MyCache, Recompute))
        for (call, *_, found), (*_, expected) in zip(*both, strict=True):
            for layer, outputs in enumerate(zip(found, expected, strict=True)):
                for path, own, right in zip(call[1][0], *outputs, strict=True):
                    what = f"the attention of path {path} in layer {layer}"
                    if own.shape != right.shape:
                        raise Fault(f"{what} has shape {[*own.shape]}, not {[*right.shape]}")
                    off = float((own - right).abs().max())
                    if not off <= EXACT:  # nor if it is NaN
                        raise Fault(f"{what} is {off:.3g} away from what recomputing gives")

    def honest(calls: list[Call]) -> None:
        for _, cache, lengths, _ in _replay(student.MyCache, calls):
            held[0] += _check_bytes(cache, lengths)
            held[1] += sum(lengths.values()) * SHAPE.row_bytes

    share = lambda: f"{held[0] / held[1]:.0%} of the bytes of separate caches"  # noqa: E731
    exact = f"attention equals recomputing in float64, in {SEQUENCES} sequences of calls"
    yield Property(exact, sequences, equal, _smaller, _shown)
    yield Property("the reported bytes are those held", sequences, honest, _smaller, _shown, share)


def _sequence(draws: random.Random, length: int) -> list[Call]:
    calls: list[Call] = []
    lengths, new_path = {0: 0}, count(1)
    while len(calls) < length:
        path, kind = draws.choice([*lengths]), draws.randrange(6)
        some = [each for each in lengths if lengths[each] < LONGEST - 3 and draws.random() < 0.7]
        new = [draws.choices(range(VOCAB), k=draws.choice((1, 1, 2, 3))) for _ in some]
        call: Call = ("prepare", (some, new))
        if kind == 0 and len(lengths) < MAX_PATHS:
            call = ("fork", (path, [next(new_path) for _ in range(2)]))
        elif kind == 1:
            call = ("trim", (path, draws.randint(0, lengths[path])))
        elif kind == 2 and len(lengths) > 1:
            call = ("release", (path,))
        if call[1][0] != []:
            calls.append(call)
            lengths = _after(lengths, call) or lengths
    return calls


def _after(lengths: Lengths, call: Call) -> Lengths | None:
    """The lengths of the paths after a call; None if a path is missing or too short, because a call
    before it was left out.
    """
    name, (first, *rest) = call
    if name == "prepare":
        if not lengths.keys() >= {*first}:
            return None
        return lengths | {p: lengths[p] + len(new) for p, new in zip(first, rest[0], strict=True)}
    if first not in lengths or (name == "trim" and rest[0] > lengths[first]):
        return None
    others = {path: length for path, length in lengths.items() if path != first}
    new_paths = {"fork": rest[0] if rest else (), "trim": (first,), "release": ()}[name]
    return others | dict.fromkeys(new_paths, rest[0] if name == "trim" else lengths[first])


@torch.inference_mode()
def _replay(
    make: Callable[[KVShape, int], KVCache], calls: list[Call]
) -> Iterator[tuple[Call, KVCache, Lengths, Outputs]]:
    """Do the calls that are possible with a new cache; yields what there is after each."""
    cache, lengths = make(SHAPE, ROOM), {0: 0}
    for name, arguments in calls:
        if (after := _after(lengths, (name, arguments))) is not None:
            lengths, outputs = after, []
            if name == "prepare":
                outputs = attend_all(cache, *arguments)
            else:
                getattr(cache, name)(*arguments)
            yield (name, arguments), cache, lengths, outputs


def _check_bytes(cache: KVCache, lengths: Lengths) -> int:
    """The bytes that a cache reports, if its report is right."""
    usage, held, tokens = cache.usage([*lengths]), bytes_reachable(cache), sum(lengths.values())
    used, spare, row = usage.rows_shared + usage.rows_private, usage.rows_spare, SHAPE.row_bytes
    if not usage.bytes_held == held == (used + spare) * row:
        raise Fault(
            f"the tensors hold {held:,} bytes, but usage reports {usage.bytes_held:,} bytes, and "
            f"{used} shared and private and {spare} spare rows of {row} bytes"
        )
    if used > tokens or usage.rows_independent != tokens:
        raise Fault(
            f"the live texts have {counted(tokens, 'token')} together, but usage reports {used} "
            f"shared and private rows, and rows_independent={usage.rows_independent}"
        )
    return held


def bytes_reachable(cache: KVCache) -> int:
    """Bytes of the memory behind all float64 tensors to which a cache refers, each counted once."""
    seen, left, storages = set[int](), list[Any]([cache]), dict[int, int]()
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type | ModuleType | FunctionType):
            continue
        seen.add(id(one))
        if not isinstance(one, Tensor):
            left += gc.get_referents(one)
        elif one.dtype == SHAPE.dtype:
            storages[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
    return sum(storages.values())


def _smaller(calls: list[Call]) -> Iterator[list[Call]]:
    """One call less, or one path less in a call of `prepare`."""
    for number in reversed(range(len(calls))):
        yield calls[:number] + calls[number + 1 :]
    for number, (name, arguments) in enumerate(calls):
        paths = len(arguments[0]) if name == "prepare" else 0
        for at in range(paths if paths > 1 else 0):
            fewer = tuple(part[:at] + part[at + 1 :] for part in arguments)
            yield [*calls[:number], (name, fewer), *calls[number + 1 :]]


def _shown(calls: list[Call]) -> str:
    return "\n".join(f"{name}({', '.join(map(str, arguments))})" for name, arguments in calls)
