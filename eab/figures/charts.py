"""What all plotly charts have in common: their size, where the legend stands, and how they look on
paper.
"""

import plotly.graph_objects as go


def laid_out(figure: go.Figure, height: int = 380) -> go.Figure:
    """The chart with its legend above it; colours are left to the page's theme."""
    figure.update_layout(
        height=height,
        margin={"l": 0, "r": 8, "t": 56, "b": 0},
        legend={"orientation": "h", "y": 1.04, "yanchor": "bottom", "x": 0},
    )
    return figure


def for_print(figure: go.Figure) -> go.Figure:
    """The same chart in black on white, whatever the theme of the page."""
    white = go.Figure(figure)
    white.update_layout(
        template="plotly_white", paper_bgcolor="white", plot_bgcolor="white", font_color="black"
    )
    white.update_layout(margin={"l": 12, "r": 12, "t": 64, "b": 12})
    return white
