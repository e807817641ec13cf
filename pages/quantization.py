"""Quantization: one weight matrix rounded to fewer bits."""

from collections.abc import Sequence
from typing import Final

import streamlit as st

from app.state import polling, weight_matrix
from app.widgets import controls
from app.widgets.charts import downloads, draw
from app.widgets.markdown import plain
from eab.errors import EabError
from eab.figures import weight_matrix as pictures
from eab.formatting import as_sentence
from eab.quantization.grid import BITS, NF4_BITS, Grid

HOW_IT_WORKS: Final = """
A weight is stored as the number of the nearest level of a grid. Weights that share a **scale**
share the grid:

- **absmax**: levels at equal distances on both sides of 0; the largest magnitude sets the scale.
- **affine**: levels at equal distances from the smallest weight to the largest; besides the scale,
  a *zero point* is stored.
- **NF4**: 16 levels at the quantiles of a normal distribution: dense near 0, where most weights
  are (Dettmers et al., [arXiv 2305.14314](https://arxiv.org/abs/2305.14314)).

One large weight, an *outlier*, stretches the grid of all weights that share its scale. Smaller
groups confine the damage, but every group stores a scale (4 bytes here, as in the engine). *Double
quantization* rounds the scales, too.
"""


def choose(names: Sequence[str]) -> tuple[str, Grid]:
    """The widgets of the matrix and its grid, in one line."""
    matrix_column, method_column, bits_column, share_column = st.columns([4, 3, 2, 3])
    with matrix_column:
        name = st.selectbox("Weight matrix", names, key="matrix")
    with method_column:
        method = st.segmented_control(
            "Method",
            list(pictures.METHODS),
            format_func=lambda name: pictures.METHODS[name],
            key="grid_method",
            required=True,
        )
    nf4 = method == "nf4"
    with bits_column:
        bits = st.select_slider("Bits", list(BITS), key="grid_bits", disabled=nf4)
    with share_column:
        share = st.select_slider(
            "Weights that share a scale",
            pictures.SHARES,
            format_func=pictures.share_words,
            key="grid_share",
        )
    double = nf4 and st.toggle("Double quantization of the scales", key="grid_double")
    return name, Grid(method, NF4_BITS if nf4 else bits, share, double)


def one_matrix(model_name: str) -> None:
    """A matrix of the model, the grid, and what rounding does."""
    names = weight_matrix.names(model_name)
    if st.session_state.get("matrix") not in names:
        st.session_state.matrix = names[len(names) // 2]
    sentence = st.container()
    name, grid = choose(names)
    rounding = weight_matrix.rounding(model_name, name, grid)
    _, shape = weight_matrix.matrix(model_name, name)
    sentence.text(pictures.takeaway_sentence(rounding, shape))
    key = f"{model_name} {name} {grid}"
    draw("", pictures.grid_sentence(rounding), pictures.matrix_figure(rounding), "weights", key)
    if rounding.weight.size < shape[0] * shape[1]:
        st.caption(
            f"Computed from {len(rounding.weight):,} evenly spaced rows of {shape[0]:,}: the "
            "whole matrix is too large to be rounded while you watch."
        )
    errors = weight_matrix.curves(
        model_name, name, pictures.grids_to_compare(grid.method, grid.double)
    )
    draw(
        "Bits and group size",
        pictures.error_sentence(errors, rounding),
        pictures.error_figure(errors, rounding),
        "rounding-error",
        key,
    )
    if grid.method == "nf4":
        st.text(pictures.double_sentence(rounding))
    downloads(
        [
            (
                "Errors (CSV)",
                "rounding-errors.csv",
                lambda: pictures.error_table(errors).to_csv(index=False),
            )
        ]
    )


controls.ensure_defaults()
for widget, value in {"method": "affine", "bits": 4, "share": 32, "double": False}.items():
    st.session_state.setdefault(f"grid_{widget}", value)

st.title("What is lost when weights are rounded?")
with st.sidebar:
    controls.choose_model()
chosen = controls.model_name()
if problem := controls.model_missing():
    st.info(as_sentence(problem))
else:
    try:
        one_matrix(chosen)
    except EabError as error:
        st.error(plain(as_sentence(str(error))))
with st.expander("How it works"):
    st.markdown(HOW_IT_WORKS)
polling.draw_fragments()
