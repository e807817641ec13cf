"""Measure the constants of the cost model on this machine.

Two short fits: seconds of growths over rows in use, and seconds of forward passes over rows held.
"""

import statistics
from collections import defaultdict
from collections.abc import Generator
from functools import lru_cache
from typing import Final

import torch

from eab.caches.growth import Calibration, CostModel, fit_cost_model
from eab.caches.shape import KVShape
from eab.caches.timing import attention_alone, prefilled_tree, time_step
from eab.events import Progressed

ROUNDS: Final = 7
ROUNDS_BEFORE_A_RUN: Final = 3  # a run should start soon
MAX_TOKENS: Final = 8
GRID_POINTS: Final = 5
MAX_BYTES: Final = 96 * 2**20  # of the largest cache that is measured
MAX_ROWS: Final = 2048


def calibrate(
    shape: KVShape, rows: int, rounds: int = ROUNDS
) -> Generator[Progressed, None, Calibration]:
    """Measure growths and forward passes, and fit the constants to their medians.

    Args:
        shape: What a row holds.
        rows: Rows of the largest measured cache; it may become smaller because of `MAX_ROWS` and
            `MAX_BYTES`.
        rounds: How often everything is measured.

    Yields:
        The progress after each round.

    Returns:
        The fitted constants and the measurements.
    """
    largest = max(2 * GRID_POINTS, min(rows, MAX_ROWS, MAX_BYTES // shape.row_bytes))
    grid = [largest * point // GRID_POINTS for point in range(1, GRID_POINTS + 1)]
    copies: defaultdict[int, list[float]] = defaultdict(list)
    visits: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for number in range(rounds):
        for held in grid:
            copies[held] += _time_growths(shape, held)
            for tokens in (1, MAX_TOKENS):
                visits[tokens, held] += _time_passes(shape, held, tokens)
        yield Progressed((number + 1) / rounds, f"calibrating: round {number + 1} of {rounds}")
    copied = [(held, statistics.median(seconds)) for held, seconds in copies.items()]
    visited = [
        (tokens, held, statistics.median(seconds)) for (tokens, held), seconds in visits.items()
    ]
    by_tokens = {
        tokens: [(held, seconds) for measured, held, seconds in visited if measured == tokens]
        for tokens in (1, MAX_TOKENS)
    }
    costs = fit_cost_model(copied, by_tokens, MAX_TOKENS)
    return Calibration(costs, tuple(copied), tuple(visited))


def calibrated(shape: KVShape, rows: int) -> CostModel:
    """The constants for runs of about `rows` rows; measured once per process, shape and number of
    threads.
    """
    rounded = 1 << (max(64, min(rows, MAX_ROWS // 2)) - 1).bit_length()
    return _calibrated(shape, rounded, torch.get_num_threads())


@lru_cache(maxsize=32)
def _calibrated(shape: KVShape, rows: int, threads: int) -> CostModel:
    steps = calibrate(shape, rows, ROUNDS_BEFORE_A_RUN)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            calibration: Calibration = end.value
            return calibration.costs


def _time_growths(shape: KVShape, rows: int) -> list[float]:
    """Seconds of a few growths with `rows` rows in use; the first one is not counted."""
    cache = prefilled_tree(shape, rows, 1, padded=True)
    seconds = []
    for _ in range(4):
        before = cache.growth_seconds
        cache.grow(1)
        seconds.append(cache.growth_seconds - before)
    return seconds[1:]


def _time_passes(shape: KVShape, held: int, tokens: int) -> list[float]:
    """Seconds of the KV part of a few forward passes over `held` rows, nearly all of them spare;
    the first one is not counted.
    """
    cache, run = prefilled_tree(shape, 1, held - 1, padded=True), attention_alone(shape)
    seconds = []
    for _ in range(4):
        seconds.append(time_step(run, cache, [1], tokens).rest)
        cache.trim(1, 1)
    return seconds[1:]
