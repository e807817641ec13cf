"""The constants of the cost model on this machine, by two short fits: growths over rows, passes
over rows held.
"""

import statistics
from collections import defaultdict
from collections.abc import Generator
from functools import lru_cache
from typing import Final

import torch

from eab.caches.growth import Calibration, CostModel, fit
from eab.caches.shape import KVShape
from eab.caches.timing import attention_reader, timed_step, tree_with
from eab.events import Progressed

ROUNDS: Final = 7
ROUNDS_IN_A_RUN: Final = 3  # a run should begin soon
MOST_TOKENS: Final = 8
POINTS: Final = 5
MOST_BYTES: Final = 96 * 2**20  # of the largest cache that is tried
MOST_ROWS: Final = 2048


def calibrate(
    shape: KVShape, rows: int, rounds: int = ROUNDS
) -> Generator[Progressed, None, Calibration]:
    """Measure growths and passes with up to `rows` rows, in rounds, and fit the constants to their
    medians.
    """
    most = max(2 * POINTS, min(rows, MOST_ROWS, MOST_BYTES // shape.row_bytes))
    grid = [most * point // POINTS for point in range(1, POINTS + 1)]
    copies: defaultdict[int, list[float]] = defaultdict(list)
    visits: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for number in range(rounds):
        for held in grid:
            copies[held] += _growths(shape, held)
            for tokens in (1, MOST_TOKENS):
                visits[tokens, held] += _passes(shape, held, tokens)
        yield Progressed((number + 1) / rounds, f"calibrating: round {number + 1} of {rounds}")
    moved = [(held, statistics.median(seconds)) for held, seconds in copies.items()]
    passed = [
        (tokens, held, statistics.median(seconds)) for (tokens, held), seconds in visits.items()
    ]
    by_tokens = {
        tokens: [(held, seconds) for found, held, seconds in passed if found == tokens]
        for tokens in (1, MOST_TOKENS)
    }
    return Calibration(fit(moved, by_tokens, MOST_TOKENS), tuple(moved), tuple(passed))


def calibrated(shape: KVShape, rows: int) -> CostModel:
    """The constants for runs of about so many rows; measured once per process, shape and number of
    threads.
    """
    return _calibrated(
        shape, 1 << (max(64, min(rows, MOST_ROWS // 2)) - 1).bit_length(), torch.get_num_threads()
    )


@lru_cache(maxsize=32)
def _calibrated(shape: KVShape, rows: int, threads: int) -> CostModel:
    steps = calibrate(shape, rows, ROUNDS_IN_A_RUN)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            fitted: Calibration = end.value
            return fitted.costs


def _growths(shape: KVShape, rows: int) -> list[float]:
    """Seconds of a few growths with so many rows in use; the first one is not counted."""
    cache = tree_with(shape, rows, 1, padded=True)
    seconds = []
    for _ in range(4):
        before = cache.growth_seconds
        cache._grow(1)
        seconds.append(cache.growth_seconds - before)
    return seconds[1:]


def _passes(shape: KVShape, held: int, tokens: int) -> list[float]:
    """Seconds of the KV part of a few passes over so many rows, nearly all of them spare; the first
    is not counted.
    """
    cache, reader = tree_with(shape, 1, held - 1, padded=True), attention_reader(shape)
    seconds = []
    for _ in range(4):
        seconds.append(timed_step(reader, cache, [1], tokens).rest)
        cache.trim(1, 1)
    return seconds[1:]
