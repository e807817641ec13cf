"""How a page puts its charts and files: the same everywhere."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st


def draw(title: str, sentence: str, figure: Any, name: str, key: str, white: bool = False) -> None:
    """One chart under its heading, if it has one, and its sentence.

    name: of its picture when it is saved. key: of what it shows. white: black on white, for print.
    """
    from eab.figures.charts import for_print

    if title:
        st.subheader(title)
    st.text(sentence)
    st.plotly_chart(
        for_print(figure) if white else figure,
        theme=None if white else "streamlit",
        key=f"{name}-{key}-{white}",
        alt=sentence,
        config={"toImageButtonOptions": {"format": "png", "filename": name, "scale": 3}},
    )


def white_background() -> bool:
    """The switch for charts that go on paper."""
    use = "The camera above each chart then saves it black on white."
    return st.toggle("White background, for print", key="print_view", help=use)


def downloads(files: Sequence[tuple[str, str, Callable[[], str]]]) -> None:
    """Buttons beside each other: label, file name, and what makes the file when it is asked for."""
    for column, (label, name, make) in zip(st.columns(len(files)), files, strict=True):
        column.download_button(
            label, make, name, key=f"download-{name}", on_click="ignore", width="stretch"
        )
