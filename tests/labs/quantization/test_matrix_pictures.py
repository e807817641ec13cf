"""The charts and sentences about one rounded matrix agree with its numbers."""

import numpy as np
import pytest

from eab.labs.charts import chart_figure
from eab.labs.quantization import matrix_pictures as pictures
from eab.labs.quantization.rounding import MATRIX, ROW, Rounding, RoundingGrid, round_to_grid

SHAPE = (64, 256)


def rounded(grid: RoundingGrid) -> Rounding:
    weight = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    weight[0, 0] = 60
    return round_to_grid(weight, grid)


def errors(method: str) -> pictures.Errors:
    found = [rounded(grid) for grid in pictures.grids_to_compare(method)]
    return [(one.grid, one.bytes_per_weight, one.error) for one in found]


def test_the_takeaway_names_levels_error_and_bytes():
    one = rounded(RoundingGrid("affine", 4, 32))
    words = pictures.takeaway_sentence(one, SHAPE)
    assert "16 levels with a scale per 32 weights" in words
    assert f"{one.error:.1%}" in words
    assert "0.625 bytes" in words
    assert "64.0 KiB" in words
    assert "10.0 KiB, a factor of 6.4." in words


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        (RoundingGrid("absmax", 4, MATRIX), "stretches the grid of all others"),
        (RoundingGrid("absmax", 4, ROW), "only the grid that it shares"),
        (RoundingGrid("nf4", share=64), "only the grid that it shares"),
    ],
)
def test_the_sentence_and_the_levels_show_the_effect_of_an_outlier(grid, expected):
    one = rounded(grid)
    words = pictures.grid_sentence(one)
    assert expected in words
    assert f"{one.outliers:,} of {one.weight.size:,} weights" in words
    histogram, *levels = pictures.matrix_figure(one).data
    assert sum(histogram.y) == SHAPE[0] * SHAPE[1]
    assert len(levels) == (1 if grid.share == MATRIX else 2)
    assert max(levels[-1].x) == pytest.approx(60, rel=1e-3)
    assert all(len(line.x) == len(grid.unit) for line in levels)


def test_the_error_chart_has_a_line_per_group_size_and_the_chosen_grid():
    one, found = rounded(RoundingGrid("absmax", 4, 64)), errors("absmax")
    figure = chart_figure(pictures.error_chart(found, one))
    assert len(figure.data) == len(pictures.SHARES) + 1
    assert (figure.data[-1].x[0], figure.data[-1].y[0]) == (one.bytes_per_weight, 100 * one.error)
    at_four = {grid.share: error for grid, _, error in found if grid.bits == 4}
    words = pictures.error_sentence(found, one)
    assert f"{at_four[MATRIX]:.1%}" in words
    assert f"{at_four[32]:.1%}" in words
    best = pictures.error_sentence(found, rounded(RoundingGrid("absmax", 8, 32)))
    assert "No grid of this method has a smaller error" in best
    assert list(pictures.error_table(found)["error"]) == [error for _, _, error in found]


def test_the_sentence_names_a_better_grid_with_no_more_bytes():
    one = round_to_grid(np.eye(64, dtype=np.float32), RoundingGrid("absmax", 2, 32))
    found = [(RoundingGrid("absmax", 2, MATRIX), 0.25, 0.0), (one.grid, 0.375, 0.5)]
    chosen = Rounding(one.grid, one.weight, 0 * one.rounded, one.scale, one.zero)
    words = pictures.error_sentence(found, chosen)
    assert "2 bits and one scale have a smaller error: 0.0% at 0.250 bytes" in words


def test_the_savings_of_double_quantization_are_stated():
    words = pictures.double_sentence(rounded(RoundingGrid("nf4", share=32)))
    assert "it saves 0.09" in words
    assert "saves nothing" in pictures.double_sentence(rounded(RoundingGrid("nf4", share=MATRIX)))
