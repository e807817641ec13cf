"""Decoding with a stopwatch: the real tree cache, step by step, with growth apart from the rest.

What reads a pass is either a model, or attention alone: every layer stores and attends, with random
numbers and no weights.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from eab.caches.base import ForwardBatch
from eab.caches.deep_copy import DeepCopyCache
from eab.caches.growth import GrowthRule
from eab.caches.shape import KVShape
from eab.caches.tree import TreeCache
from eab.events import Growth

Reader: TypeAlias = Callable[[ForwardBatch], object]
NO_LIMIT = 2**50


class TimedTree(TreeCache):
    """A tree cache that notes how long its growths take, in all.

    bare: padded attention leaves the spare rows out, with the same kernel and mask, to find out
    what they add.
    """

    growth_seconds = 0.0
    bare = False

    @property
    def _visited(self) -> int:
        return self._end if self.bare else super()._visited

    def _frame_for(self, tokens: int, wanted: int) -> None:
        """None: what is timed is the kernel, launched as it is."""

    def _grow(self, more: int) -> Growth:
        start = now(self.shape.device)
        growth = super()._grow(more)
        self.growth_seconds += now(self.shape.device) - start
        return growth


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one step: making room, and everything else. spare: what the spare rows add to the
    latter.

    grew: whether room had to be made.
    """

    growth: float
    rest: float
    spare: float = 0.0
    grew: bool = False

    @property
    def seconds(self) -> float:
        """The whole step."""
        return self.growth + self.rest


def now(device: torch.device) -> float:
    """Seconds, once the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.current_stream(
            device
        ).synchronize()  # the device as a whole must not be waited for beside a capture
    return time.perf_counter()


def attention_reader(shape: KVShape) -> Reader:
    """The KV part of a step alone: in every layer, the new rows are stored and the query is
    answered.
    """
    groups, size, scale = shape.kv_heads, shape.head_dim, shape.head_dim**-0.5
    made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def read(one: ForwardBatch) -> None:
        tokens = len(one.ids)
        if tokens not in made:
            heads = (groups * shape.group, groups)
            query, key = (
                torch.randn((1, count, tokens, size), dtype=shape.dtype, device=shape.device)
                for count in heads
            )
            made[tokens] = query, key
        query, key = made[tokens]
        for layer in range(shape.layers):
            one.cache.attend(layer, query, key, key, scale)

    return read


def tree_with(
    shape: KVShape,
    rows: int,
    r: int | GrowthRule,
    *,
    padded: bool,
    paths: int = 1,
    steps: int | None = None,
) -> TimedTree:
    """A tree cache that holds a prompt of `rows` rows, seen by so many paths, 1 to n, and grows by
    r steps' worth.

    The rows hold zeros: no time depends on what they say. steps: how many are to come, if the cache
    shall know.
    """
    cache = TimedTree(shape, r, NO_LIMIT, padded)
    if rows:
        cache.reserve(rows, steps or 1)
        cache.pack([0], [[0] * rows])
    if steps is None:
        cache._steps = None
    cache.fork(0, range(1, paths + 1))
    cache.growth_seconds = 0.0
    return cache


@torch.inference_mode()
def timed_step(
    reader: Reader, cache: TimedTree | DeepCopyCache, paths: Sequence[int], tokens: int = 1
) -> StepTime:
    """One pass of so many tokens on each path."""
    before = cache.growth_seconds if isinstance(cache, TimedTree) else 0.0
    start = now(cache.shape.device)
    packed = cache.pack(paths, [[0] * tokens for _ in paths])
    reader(packed)
    seconds = now(cache.shape.device) - start
    growth = cache.growth_seconds - before if isinstance(cache, TimedTree) else 0.0
    return StepTime(growth, seconds - growth, grew=bool(packed.growths))


@torch.inference_mode()
def timed_pair(reader: Reader, cache: TimedTree, path: int, bare_first: bool) -> StepTime:
    """One pass of one token, read twice: over all rows held, and without the spare ones. The
    difference is what they add.

    Both take place at nearly the same moment, so that a disturbance of the machine hardly tells in
    the difference. The second finds the rows in the processor's caches; take turns with
    `bare_first`.
    """
    before = cache.growth_seconds
    packed = cache.pack([path], [[0]])
    growth = cache.growth_seconds - before
    if cache.rows == cache._end:
        return StepTime(
            growth, _read_once(reader, cache, packed, bare=False), grew=bool(packed.growths)
        )
    seconds = {
        bare: _read_once(reader, cache, packed, bare) for bare in (bare_first, not bare_first)
    }
    return StepTime(growth, seconds[False], seconds[False] - seconds[True], bool(packed.growths))


def _read_once(reader: Reader, cache: TimedTree, packed: ForwardBatch, bare: bool) -> float:
    """Seconds to read a pass that is packed; what was written by an earlier reading is written
    again.
    """
    all_seen = cache._seen
    cache.bare, cache._masked = bare, False
    cache._seen = all_seen[:, : cache._visited]
    start = now(cache.shape.device)
    reader(packed)
    seconds = now(cache.shape.device) - start
    cache.bare, cache._seen = False, all_seen
    return seconds
