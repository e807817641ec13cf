"""What all charts share, and plotly; if it is missing, the error names the extra that has it."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np  # noqa: F401
import pandas as pd  # noqa: F401

from eab.errors import need
from eab.formatting import shortened
from eab.timing import MILLI, Timing

need("app", "plotly")
import plotly.graph_objects as go  # noqa: E402
from plotly.subplots import make_subplots  # noqa: E402

__all__ = ["go", "make_subplots"]


# Readable on light and dark pages. Dashes, symbols and patterns also tell series apart.
BLUE, ORANGE, GREEN, PURPLE = "#1f83c9", "#d9661f", "#13946b", "#b0609f"
GREY, GOLD = "#8c8c8c", "#a98612"
_ROUND_NUMBERS: Final = [digit * 10.0**power for power in range(-9, 10) for digit in (1, 2, 5)]
_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
Axis: TypeAlias = str | dict[str, Any]  # its title, or all of its plotly settings


class LineStyle(NamedTuple):
    """How a line of a chart is drawn, as plotly names it."""

    colour: str
    dash: str
    symbol: str


LINE_STYLES: Final = (
    LineStyle(BLUE, "solid", "circle"),
    LineStyle(ORANGE, "dash", "square"),
    LineStyle(GREEN, "dot", "diamond"),
    LineStyle(PURPLE, "dashdot", "triangle-up"),
    LineStyle(GREY, "longdash", "x"),
    LineStyle(GOLD, "longdashdot", "cross"),
)


def line_style(index: int) -> LineStyle:
    """The style of line number `index`; the styles repeat after the last one."""
    return LINE_STYLES[index % len(LINE_STYLES)]


def add_line(
    figure: go.Figure,
    name: str,
    points: Sequence[tuple[float, float]],
    style: LineStyle,
    hover: str,
) -> None:
    """Add a line with a symbol at each point; `hover` uses plotly's %{x} and %{y}."""
    figure.add_scatter(
        name=name,
        mode="lines+markers",
        x=[x for x, _ in points],
        y=[y for _, y in points],
        line={"color": style.colour, "dash": style.dash, "width": 2.5},
        marker={"symbol": style.symbol, "size": 8},
        hovertemplate=f"{name}, {hover}<extra></extra>",
    )


def add_timings(
    figure: go.Figure,
    name: str,
    timings: Mapping[float, Timing] | Mapping[int, Timing],
    style: LineStyle,
    hover: str,
    scale: float = MILLI,
) -> None:
    """Add a line through the medians, with error bars between the quartiles; scaled by `scale`."""
    points = [(x, scale * timing.median) for x, timing in timings.items()]
    add_line(figure, name, points, style, hover)
    figure.data[-1].update(error_y=error_bars([*timings.values()], scale))


def error_bars(timings: Sequence[Timing], scale: float = MILLI) -> dict[str, Any]:
    """Plotly error bars from the lower to the upper quartile."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [scale * (timing.high - timing.median) for timing in timings],
        "arrayminus": [scale * (timing.median - timing.low) for timing in timings],
        "visible": any(len(timing.seconds) > 1 for timing in timings),
    }


def mark_x(figure: go.Figure, x: float, words: str, is_log: bool) -> None:
    """Mark this x by a vertical line; on a log axis, plotly places annotations by logarithm."""
    figure.add_vline(x=x, line={"color": PURPLE, "width": 2})
    is_last = all(other <= x for trace in figure.data for other in trace.x)
    side = {"xanchor": "right", "xshift": -6} if is_last else {"xanchor": "left", "xshift": 6}
    at = math.log10(x) if is_log else x
    figure.add_annotation(x=at, y=1, yref="paper", text=words, showarrow=False, **side)


def log_axis(title: str) -> dict[str, Any]:
    """A logarithmic axis with ticks at round numbers. Plotly's own tick labels overlap."""
    ticks = {"tickvals": _ROUND_NUMBERS, "minexponent": 5}  # 0.0001, not 100µ
    return {"title": f"{title} (log scale)", "type": "log"} | ticks


def bar_pattern(shape: str | Sequence[str]) -> dict[str, Any]:
    """The white pattern on a bar, or on each of several bars; "" for none."""
    return {"shape": shape, "fillmode": "overlay", "fgcolor": "white", "size": 6, "solidity": 0.2}


def byte_unit(most: float) -> tuple[int, str]:
    """A suitable unit for an axis up to this many bytes: its size in bytes and its name."""
    if most < _MIB:
        return _KIB, "KiB"
    return (_MIB, "MiB") if most < _GIB else (_GIB, "GiB")


def text_label(text: str, max_length: int) -> str:
    """A model's text as a label, escaped, because plotly would read its `<` as markup."""
    return html.escape(shortened(text, max_length), quote=False)


def from_zero(title: str) -> dict[str, Any]:
    """An axis that starts at 0."""
    return {"title": title, "rangemode": "tozero"}


def laid_out(
    figure: go.Figure, height: int = 380, x: Axis | None = None, y: Axis | None = None
) -> go.Figure:
    """The chart with its legend on top and these axes; colours are left to the page's theme."""
    figure.update_layout(
        height=height,
        margin={"l": 0, "r": 8, "t": 56, "b": 0},
        legend={"orientation": "h", "y": 1.04, "yanchor": "bottom", "x": 0},
    )
    figure.update_xaxes({"title": x} if isinstance(x, str) else x)
    figure.update_yaxes({"title": y} if isinstance(y, str) else y)
    return figure


def in_ink(figure: go.Figure, ink: str) -> go.Figure:
    """The same chart with all its text in one colour; plotly's themes use fainter colours."""
    inked = go.Figure(figure)
    inked.update_layout(font_color=ink, legend_font_color=ink)
    words = {"tickfont_color": ink, "title_font_color": ink}
    inked.update_xaxes(**words)
    inked.update_yaxes(**words)
    inked.update_annotations(selector=lambda note: note.font.color is None, font_color=ink)
    inked.update_traces(colorbar=words, selector={"type": "heatmap"})
    return inked


def for_print(figure: go.Figure) -> go.Figure:
    """The same chart in black on white, whatever the theme of the page."""
    white = go.Figure(figure)
    white.update_layout(
        template="plotly_white", paper_bgcolor="white", plot_bgcolor="white", font_color="black"
    )
    white.update_layout(margin={"l": 12, "r": 12, "t": 64, "b": 12})
    return white
