"""The weight matrix on the Quantization page, and its roundings, cached between redraws."""

from collections.abc import Sequence

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from app.server import model_cache
from app.state.process import worker
from eab.labs.quantization.rounding import Rounding, RoundingGrid, round_to_grid

KEPT = 8  # of each kind, shared by all tabs


def names(model_name: str) -> Sequence[str]:
    """The names of a model's weight matrices; the model is loaded if necessary."""
    return model_cache.names(model_name, worker().model)


@st.cache_data(max_entries=KEPT, show_spinner=False)
def matrix(model_name: str, name: str) -> tuple[NDArray[np.float32], tuple[int, int]]:
    """A weight matrix, or some of its rows, and the shape of the whole one."""
    return model_cache.matrix(model_name, name, worker().model)


@st.cache_data(max_entries=KEPT, show_spinner=False)
def curves(
    model_name: str, name: str, grids: tuple[RoundingGrid, ...]
) -> tuple[tuple[RoundingGrid, float, float], ...]:
    """For each grid: the grid, the bytes per weight, and the error."""
    weight, _ = matrix(model_name, name)
    rounded = (round_to_grid(weight, grid) for grid in grids)
    return tuple((result.grid, result.bytes_per_weight, result.error) for result in rounded)


def rounding(model_name: str, name: str, grid: RoundingGrid) -> Rounding:
    """The matrix rounded to this grid."""
    return round_to_grid(matrix(model_name, name)[0], grid)
