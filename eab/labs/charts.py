"""Draws the chart that a laboratory describes."""

from typing import Any

from eab.figures.charts import add_timings, from_zero, laid_out, line_style, log_axis, mark_x
from eab.figures.drawing import go
from eab.labs.measurement import Chart


def chart_figure(chart: Chart) -> go.Figure:
    """Lines and points, with error bars between quartiles; a log axis leaves out values of 0."""
    figure = go.Figure()
    is_log = "y" in chart.log
    modes = (
        (chart.lines, "lines" if chart.points else "lines+markers", 8),
        (chart.points, "markers", 13),
    )
    for drawn, mode, size in modes:
        for index, (name, timings) in enumerate(drawn.items()):
            seen = {x: timing for x, timing in timings.items() if timing.median > 0 or not is_log}
            add_timings(figure, name, seen, line_style(index), "%{x}: %{y:,.4~g}", chart.scale)
            figure.data[-1].update(mode=mode, marker_size=size)
    if chart.mark is not None:
        mark_x(figure, *chart.mark, is_log="x" in chart.log)
    x: dict[str, Any] = log_axis(chart.x) if "x" in chart.log else {"title": chart.x}
    ticks = {"tickvals": list(chart.ticks)} if chart.ticks else {}
    return laid_out(figure, x=x | ticks, y=log_axis(chart.y) if is_log else from_zero(chart.y))
