"""Charts and sentences about one rounded weight matrix: its weights, grid and error."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from eab.figures.charts import BLUE, GREEN, ORANGE, laid_out, log_axis
from eab.figures.drawing import go, make_subplots
from eab.formatting import human_bytes, times
from eab.labs.measurement import Chart
from eab.labs.quantization.rounding import (
    BITS,
    MATRIX,
    NF4_BITS,
    OUTLIER,
    ROW,
    Method,
    Rounding,
    RoundingGrid,
    Share,
    round_to_grid,
)
from eab.timing import Timing

SHARES: Final[tuple[Share, ...]] = (MATRIX, ROW, 128, 64, 32)
METHODS: Final[dict[Method, str]] = {"absmax": "absmax", "affine": "affine", "nf4": "NF4"}
_BINS: Final = 121
_FLOAT32: Final = 4  # bytes

Errors = Sequence[tuple[RoundingGrid, float, float]]  # grid, bytes per weight, error


def share_words(share: Share) -> str:
    """The set of weights that share a scale."""
    whole = {MATRIX: "whole matrix", ROW: "one row"}
    return whole[share] if isinstance(share, str) else f"{share} weights"


def grids_to_compare(method: Method, double: bool = False) -> tuple[RoundingGrid, ...]:
    """The grids of a method with every number of bits and every group size."""
    bits = [NF4_BITS] if method == "nf4" else BITS
    return tuple(RoundingGrid(method, number, share, double) for share in SHARES for number in bits)


def takeaway_sentence(rounding: Rounding, shape: tuple[int, int]) -> str:
    """The error of the rounding and the memory that it saves."""
    grid, per_weight = rounding.grid, rounding.bytes_per_weight
    size = shape[0] * shape[1]
    return (
        f"Rounded to {len(grid.unit)} levels with {_scales(grid.share)}, a weight is off by "
        f"{rounding.error:.1%} of its typical size (root mean square). A weight takes "
        f"{per_weight:.3f} bytes including its share of the scales, so the matrix shrinks "
        f"from {human_bytes(size * _FLOAT32)} in float32 to {human_bytes(size * per_weight)}, "
        f"a factor of {_FLOAT32 / per_weight:.3g}."
    )


def _scales(share: Share) -> str:
    whole = {MATRIX: "one scale", ROW: "a scale per row"}
    return whole[share] if isinstance(share, str) else f"a scale per {share} weights"


def grid_sentence(rounding: Rounding) -> str:
    """How many outliers there are, and which grids they stretch."""
    words = (
        f"Outliers, more than {OUTLIER:g} standard deviations from the mean: "
        f"{rounding.outliers:,} of {rounding.weight.size:,} weights."
    )
    if len(rounding.scale) == 1:
        return f"{words} The outermost weight stretches the grid of all others."
    widest, typical = (rounding.scale[rounding.group_at(at)] for at in (1.0, 0.5))
    if widest <= typical:
        return f"{words} All grids have the same step size."
    return (
        f"{words} An outlier stretches only the grid that it shares: the coarsest has steps "
        f"{times(float(widest / typical))} as wide as those of a typical one."
    )


def matrix_figure(rounding: Rounding) -> go.Figure:
    """A histogram of the weights, above the levels of a typical and of the coarsest grid."""
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, row_heights=[0.74, 0.26], vertical_spacing=0.04
    )
    reach = float(np.abs(rounding.weight).max()) or 1.0
    edges = np.linspace(-reach, reach, _BINS + 1)
    counts, _ = np.histogram(rounding.weight, edges)
    figure.add_bar(
        name="weights",
        x=(edges[:-1] + edges[1:]) / 2,
        y=counts,
        marker={"color": BLUE, "line": {"width": 0}},
        hovertemplate="%{y:,} weights near %{x:.3f}<extra></extra>",
        row=1,
        col=1,
    )
    for place, (name, group, colour) in enumerate(_drawn_grids(rounding)):
        levels = rounding.levels(group)
        figure.add_scatter(
            name=name,
            mode="markers",
            x=levels,
            y=[place] * len(levels),
            marker={
                "symbol": "line-ns",
                "color": colour,
                "size": 13,
                "line": {"width": 1.5, "color": colour},
            },
            hovertemplate=f"{name}, level %{{x:.4f}}<extra></extra>",
            row=2,
            col=1,
        )
    figure.update_yaxes(log_axis("weights per bar"), row=1, col=1)
    figure.update_yaxes(
        showticklabels=False, range=[-0.8, 1.8], showgrid=False, zeroline=False, row=2, col=1
    )
    figure.update_xaxes(title="value of a weight", row=2, col=1)
    figure.update_layout(bargap=0)
    return laid_out(figure, 340)


def _drawn_grids(rounding: Rounding) -> list[tuple[str, int, str]]:
    if len(rounding.scale) == 1:
        return [("levels of the one grid", 0, ORANGE)]
    return [
        ("levels of a typical grid", rounding.group_at(0.5), GREEN),
        ("levels of the coarsest grid", rounding.group_at(1.0), ORANGE),
    ]


def error_chart(errors: Errors, chosen: Rounding) -> Chart:
    """The error over bytes per weight, one line per group size, with the chosen grid."""
    lines = {
        f"scale per {share_words(share)}": {
            size: Timing((100 * error,)) for grid, size, error in errors if grid.share == share
        }
        for share in SHARES
    }
    points = {"chosen": {chosen.bytes_per_weight: Timing((100 * chosen.error,))}}
    x, y = "bytes per weight, scales included", "error, % of the weights' size"
    return Chart(x, y, lines, points, log="y")


def error_sentence(errors: Errors, chosen: Rounding) -> str:
    """How much smaller groups help at the chosen bits, and whether a better grid exists."""
    same = {
        grid.share: (size, error)
        for grid, size, error in errors
        if (grid.bits, grid.double) == (chosen.grid.bits, chosen.grid.double)
    }
    (coarse_size, coarse), (fine_size, fine) = same[MATRIX], same[SHARES[-1]]
    words = (
        f"At {chosen.grid.bits} bits, the error is {coarse:.1%} with one scale "
        f"({coarse_size:.3f} bytes per weight) and {fine:.1%} with a scale per {SHARES[-1]} "
        f"weights ({fine_size:.3f} bytes)."
    )
    fitting = [point for point in errors if point[1] <= chosen.bytes_per_weight]
    grid, size, error = min(fitting, key=lambda point: point[2])
    if error >= chosen.error:
        return f"{words} No grid of this method has a smaller error in the same number of bytes."
    return (
        f"{words} In no more bytes than the chosen grid, {grid.bits} bits and "
        f"{_scales(grid.share)} have a smaller error: {error:.1%} at {size:.3f} bytes."
    )


def double_sentence(rounding: Rounding) -> str:
    """How much memory double quantization saves, and its effect on the error; NF4 only."""
    grid = rounding.grid
    single, double = (
        round_to_grid(rounding.weight, RoundingGrid(grid.method, grid.bits, grid.share, double))
        for double in (False, True)
    )
    saved = single.bytes_per_weight - double.bytes_per_weight
    if saved <= 0:
        return "With so few scales, double quantization saves nothing."
    return (
        f"Double quantization rounds the scales to 8 bits: it saves {saved:.3f} bytes per weight "
        f"({saved / single.bytes_per_weight:.1%}) and moves the error from {single.error:.2%} to "
        f"{double.error:.2%}."
    )


def error_table(errors: Errors) -> pd.DataFrame:
    """One row per point of the chart."""
    return pd.DataFrame(
        {
            "method": grid.method,
            "bits": grid.bits,
            "scale per": share_words(grid.share),
            "bytes per weight": size,
            "error": error,
        }
        for grid, size, error in errors
    )
