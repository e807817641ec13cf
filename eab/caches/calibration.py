"""Measure the constants of the cost model on this machine.

Two short fits: seconds of growths over rows in use, and seconds of forward passes over rows held.
"""

import statistics
from collections import defaultdict
from collections.abc import Generator
from typing import Final

import torch

from eab.caches.growth import ROW_BLOCK, Calibration, fit_cost_model
from eab.caches.shape import KVShape
from eab.caches.timing import attention_alone, prefilled_tree, time_attention
from eab.events import Progressed

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

    def fit(self) -> Calibration:
        """The constants, and the medians of all rounds so far to which they are fitted."""
        copied = [(rows, statistics.median(seconds)) for rows, seconds in self._copies.items()]
        visited = {
            tokens: [(rows, statistics.median(self._visits[tokens, rows])) for rows in self._grid]
            for tokens in (1, MAX_TOKENS)
        }
        return Calibration(
            fit_cost_model(copied, visited, MAX_TOKENS),
            tuple(copied),
            tuple((tokens, *point) for tokens, points in visited.items() for point in points),
        )

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
) -> Generator[Progressed, None, Calibration]:
    """Measure rounds; yields the progress after each, and returns the fit at the end."""
    for number in range(rounds):
        calibrator.measure()
        yield Progressed((number + 1) / rounds, f"calibrating: round {number + 1} of {rounds}")
    return calibrator.fit()
