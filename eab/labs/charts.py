"""Draws the chart that a laboratory describes."""

from collections.abc import Mapping
from typing import Any

from eab.figures.charts import (
    add_timings,
    bar_pattern,
    from_zero,
    laid_out,
    line_style,
    log_axis,
    mark_x,
)
from eab.figures.drawing import go
from eab.labs.measurement import Chart
from eab.timing import Timing


def chart_figure(chart: Chart) -> go.Figure:
    """Lines and points, with error bars between quartiles; a log axis leaves out values of 0."""
    figure = go.Figure()
    is_log = "y" in chart.log
    plain = "lines" if chart.points or chart.bands else "lines+markers"
    for drawn, mode, size in ((chart.lines, plain, 8), (chart.points, "markers", 13)):
        for index, (name, timings) in enumerate(drawn.items()):
            style = line_style(index)
            seen = {x: timing for x, timing in timings.items() if timing.median > 0 or not is_log}
            if chart.stacked:
                bars = {"color": style.colour, "pattern": bar_pattern("/" * index)}
                ys = [chart.scale * timing.median for timing in seen.values()]
                figure.add_bar(name=name, x=[*seen], y=ys, marker=bars)
                continue
            if chart.bands:
                _add_band(figure, style.colour, seen, chart.scale)
            add_timings(figure, name, seen, style, "%{x}: %{y:,.4~g}", chart.scale)
            figure.data[-1].update(mode=mode, marker_size=size, showlegend=True)
            figure.data[-1].error_y.visible &= not chart.bands
    figure.update_layout(barmode="stack")
    if chart.mark is not None:
        mark_x(figure, *chart.mark, is_log="x" in chart.log)
    x: dict[str, Any] = log_axis(chart.x) if "x" in chart.log else {"title": chart.x}
    ticks = {"tickvals": list(chart.ticks)} if chart.ticks else {}
    return laid_out(figure, x=x | ticks, y=log_axis(chart.y) if is_log else from_zero(chart.y))


def _add_band(
    figure: go.Figure, colour: str, timings: Mapping[float, Timing], scale: float
) -> None:
    """Fill the area between the quartiles, if there are repeats."""
    if any(len(timing.seconds) > 1 for timing in timings.values()):
        there = [*timings.items()]
        figure.add_scatter(
            x=[x for x, _ in (*there, *there[::-1])],
            y=[scale * one.high for _, one in there] + [scale * one.low for _, one in there[::-1]],
            fill="toself",
            fillcolor=colour,
            opacity=0.25,
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            showlegend=False,
        )
