"""Timed decode steps of the real tree cache, with growth timed separately.

A prepared batch is run either by a model or by attention alone: every layer stores K and V and
attends, with random numbers and without weights.

The constants of the cost model are measured by two short fits: seconds of growths over rows in use,
and seconds of forward passes over rows held.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch

from eab.config import AllocationStep
from eab.engine.caches.attention import attention_kernels
from eab.engine.caches.base import ForwardBatch
from eab.engine.caches.baselines import DeepCopyCache
from eab.engine.caches.growth import ROW_BLOCK, CostModel, fit_cost_model
from eab.engine.caches.shape import KVShape, RowShape
from eab.engine.caches.tree import TreeCache
from eab.run.events import Growth, Progressed

RunBatch: TypeAlias = Callable[[ForwardBatch], object]
NO_LIMIT: Final = 2**50


class TimedTreeCache(TreeCache):
    """A tree cache that measures how long its growths take.

    It uses no static buffers: the kernels are timed as they are launched.
    """

    def __init__(self, shape: KVShape, r: AllocationStep, padded: bool) -> None:
        super().__init__(shape, r, NO_LIMIT, padded)
        self._static_buffers = False
        self.growth_seconds = 0.0

    def grow(self, more: int) -> Growth:
        start = now(self.shape.device)
        growth = super().grow(more)
        self.growth_seconds += now(self.shape.device) - start
        return growth


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one decode step."""

    growth: float  # seconds of the reallocation
    rest: float
    spare: float = 0.0  # what the spare rows add to `rest`
    grew: bool = False

    @property
    def seconds(self) -> float:
        """The whole step."""
        return self.growth + self.rest


def now(device: torch.device) -> float:
    """Seconds on a monotonic clock, read when the device has finished its work."""
    if device.type == "cuda":
        # Not the whole device: that is forbidden while another thread captures a CUDA graph.
        torch.cuda.current_stream(device).synchronize()
    return time.perf_counter()


def attention_alone(shape: KVShape) -> RunBatch:
    """A function for the KV part of a step: every layer stores new rows and attends."""
    rows = [shape.row(layer) for layer in range(shape.layers)]
    made: dict[tuple[int, RowShape], list[torch.Tensor]] = {}

    def run(batch: ForwardBatch) -> None:
        tokens = len(batch.ids)
        for row in set(rows):
            if (tokens, row) not in made:
                made[tokens, row] = [
                    torch.randn((1, heads, tokens, size), dtype=shape.dtype, device=shape.device)
                    for heads, size in (
                        (row.kv_heads * row.group, row.key_dim),
                        (row.kv_heads, row.key_dim),
                        (row.kv_heads, row.value_dim),
                    )
                ]
        with attention_kernels(shape.device):
            for layer, row in enumerate(rows):
                query, key, value = made[tokens, row]
                batch.cache.attend(layer, query, key, value, row.key_dim**-0.5)

    return run


def prefilled_tree(
    shape: KVShape,
    rows: int,
    r: AllocationStep,
    *,
    padded: bool,
    paths: int = 1,
    steps: int | None = None,
) -> TimedTreeCache:
    """A tree cache that holds a prompt of `rows` zeros, for paths 1 to `paths`; the content does
    not affect the timing. The cache expects `steps` decode steps; None if unknown.
    """
    cache = TimedTreeCache(shape, r, padded)
    if rows:
        cache.reserve(rows, steps)
        cache.prepare([0], [[0] * rows])
    cache.fork(0, range(1, paths + 1))
    cache.growth_seconds = 0.0
    return cache


@torch.inference_mode()
def time_step(
    run: RunBatch, cache: TimedTreeCache | DeepCopyCache, paths: Sequence[int], tokens: int = 1
) -> StepTime:
    """Time one forward pass with `tokens` tokens on each path."""
    before = cache.growth_seconds if isinstance(cache, TimedTreeCache) else 0.0
    start = now(cache.shape.device)
    batch = cache.prepare(paths, [[0] * tokens for _ in paths])
    run(batch)
    seconds = now(cache.shape.device) - start
    growth = cache.growth_seconds - before if isinstance(cache, TimedTreeCache) else 0.0
    return StepTime(growth, seconds - growth, grew=bool(batch.growths))


@torch.inference_mode()
def time_spare_rows(
    run: RunBatch, cache: TimedTreeCache, path: int, sliced_first: bool
) -> StepTime:
    """Time one padded forward pass of one token twice: with the spare rows and without them, to the
    nearest `ROW_BLOCK`.

    Both runs take place at almost the same moment, so a disturbance of the machine hardly affects
    their difference, which is the cost of the spare rows. The second run finds the rows in the
    processor's caches, so alternate `sliced_first`.
    """
    before = cache.growth_seconds
    batch = cache.prepare([path], [[0]])
    growth, grew = cache.growth_seconds - before, bool(batch.growths)
    without = min(cache.rows, ROW_BLOCK * max(1, round(cache.end / ROW_BLOCK)))
    if without == cache.rows:
        return StepTime(growth, time_attention(run, cache, batch, cache.rows), grew=grew)
    seconds = {
        sliced: time_attention(run, cache, batch, without if sliced else cache.rows)
        for sliced in (sliced_first, not sliced_first)
    }
    return StepTime(growth, seconds[False], seconds[False] - seconds[True], grew)


def time_attention(run: RunBatch, cache: TimedTreeCache, batch: ForwardBatch, rows: int) -> float:
    """Seconds to run a prepared batch with attention over the first rows; running it again
    overwrites what it stored.
    """
    start = now(cache.shape.device)
    cache.end_attention_at(rows)
    run(batch)
    return now(cache.shape.device) - start


ROUNDS: Final = 7
MAX_TOKENS: Final = 8
GRID_POINTS: Final = 5
REPEATS: Final = 3  # in each round
MAX_BYTES: Final = 96 * 2**20  # of the largest cache that is measured
MAX_ROWS: Final = 2048


class Calibrator:
    """Measures growths and forward passes in rounds, and fits the constants to the medians.

    The speed of a machine changes from second to second, so the points of a round are measured
    close together, and the constants rank growth steps but predict no seconds. The largest cache
    has `rows` rows, or fewer because of `MAX_ROWS` and `MAX_BYTES`.
    """

    def __init__(self, shape: KVShape, rows: int) -> None:
        self._shape = shape
        most = min(rows, MAX_ROWS, MAX_BYTES // shape.row_bytes)
        blocks, points = max(GRID_POINTS, most // ROW_BLOCK), range(1, GRID_POINTS + 1)
        self._grid = [ROW_BLOCK * (blocks * point // GRID_POINTS) for point in points]
        self._copies: defaultdict[int, list[float]] = defaultdict(list)
        self._visits: defaultdict[tuple[int, int], list[float]] = defaultdict(list)

    def measure(self) -> None:
        """Measure one round."""
        for rows in self._grid:
            self._time_growths(rows)
        for tokens in (1, MAX_TOKENS):
            self._time_passes(tokens)

    def fit(self) -> CostModel:
        """The constants, fitted to the medians of all rounds so far."""
        copied = [(rows, statistics.median(seconds)) for rows, seconds in self._copies.items()]
        visited = {
            tokens: [(rows, statistics.median(self._visits[tokens, rows])) for rows in self._grid]
            for tokens in (1, MAX_TOKENS)
        }
        return fit_cost_model(copied, visited, MAX_TOKENS)

    def _time_growths(self, rows: int) -> None:
        """Time a few growths with `rows` rows in use; the first one is not counted."""
        cache = prefilled_tree(self._shape, rows, 1, padded=True)
        for number in range(REPEATS + 1):
            before = cache.growth_seconds
            cache.grow(1)
            if number:
                self._copies[rows].append(cache.growth_seconds - before)

    @torch.inference_mode()
    def _time_passes(self, tokens: int) -> None:
        """Time the KV part of a few forward passes over rows of one cache, up and down the grid;
        the first ones are not counted.
        """
        cache = prefilled_tree(self._shape, 0, self._grid[-1], padded=True)
        run = attention_alone(self._shape)
        batch = cache.prepare([1], [[0] * tokens])
        for number in range(REPEATS + 1):
            for rows in self._grid if number % 2 else reversed(self._grid):
                seconds = time_attention(run, cache, batch, rows)
                if number:
                    self._visits[tokens, rows].append(seconds)


def calibrate(
    calibrator: Calibrator, rounds: int = ROUNDS
) -> Generator[Progressed, None, CostModel]:
    """Measure rounds; yields the progress after each, and returns the fit at the end."""
    for number in range(rounds):
        calibrator.measure()
        yield Progressed((number + 1) / rounds, f"calibrating: round {number + 1} of {rounds}")
    return calibrator.fit()
