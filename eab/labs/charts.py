"""Draws what a laboratory shows: the chart that it describes, and the same requests served in three
ways over one x axis: slots, tokens per pass, KV bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from eab import token_text
from eab.analysis.schedule import Schedule
from eab.figures.charts import (
    BLUE,
    GREEN,
    ORANGE,
    add_timings,
    bar_pattern,
    from_zero,
    go,
    laid_out,
    line_style,
    log_axis,
    mark_x,
    text_label,
)
from eab.figures.schedule import Across, Lane, add_idle, add_work
from eab.labs.batching import TITLES, Way, shown, workload_of
from eab.labs.measurement import Chart, Report
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


AXES: Final[dict[Across, str]] = {
    "seconds": "seconds since the requests arrived (measured)",
    "passes": "forward passes since the requests arrived",
}
_LINES: Final[dict[Way, dict[str, object]]] = {
    "continuous": {"color": BLUE, "dash": "solid"},
    "static batches": {"color": ORANGE, "dash": "dash"},
    "one by one": {"color": GREEN, "dash": "dot"},
}
# px: row of a slot, chart, gap with a title, legend, x axis
_SLOT, _CHART, _GAP, _LEGEND, _BELOW = 19, 110, 28, 26, 48
_MIB: Final = 2**20
_CURSOR: Final = {  # a line through all charts above the x axis
    "showspikes": True,
    "spikemode": "across",
    "spikesnap": "cursor",
    "spikethickness": 1,
    "spikedash": "solid",
}


class _Band(NamedTuple):
    title: str
    top: int
    height: int


def batching_figure(report: Report, across: Across) -> go.Figure:
    """Slots, tokens per pass and KV bytes of each way, in its repeat of median length."""
    drawn, workload = shown(report), workload_of(report)
    until = max((_length(schedule, across) for schedule in drawn.values()), default=1.0)
    figure = go.Figure()
    bands = _bands(drawn)
    names = {
        number: f"request {number + 1}: “{text_label(token_text.visible(request.prompt), 60)}”"
        for number, request in enumerate(workload.requests)
    }
    labels = {number: str(number + 1) for number in names}
    for index, (way, schedule) in enumerate(drawn.items()):
        slots, tokens, memory = (
            Lane(schedule, _axis(band), across, names, labels, until)
            for band in (index, len(drawn), len(drawn) + 1)
        )
        add_work(figure, slots)
        add_idle(figure, slots)
        _add_lines(figure, way, tokens, memory)
    _lay_out(figure, bands, workload.slots, len(drawn))
    figure.update_xaxes(range=[0, 1.01 * until], title=AXES[across])
    return figure


def _length(schedule: Schedule, across: Across) -> float:
    return schedule.seconds if across == "seconds" else float(len(schedule.passes))


def _add_lines(figure: go.Figure, way: Way, tokens: Lane, memory: Lane) -> None:
    """Two step lines: the tokens of each pass, and the KV bytes held."""
    passes = tokens.schedule.passes
    for lane, values, hover in (
        (tokens, [served.tokens for served in passes], "{:.0f} tokens in the pass"),
        (memory, [served.kv_bytes / _MIB for served in passes], "{:.1f} MiB held"),
    ):
        spans = [lane.span(number, number) for number in range(len(values))]
        figure.add_scatter(
            name=TITLES[way],
            mode="lines",
            x=[*(start for start, _ in spans), sum(spans[-1]) if spans else 0.0],
            y=[*values, 0] if values else [],
            yaxis=lane.axis,
            line={"shape": "hv", "width": 2, **_LINES[way]},
            customdata=[hover.format(value) for value in (*values, 0)],
            hovertemplate=f"{TITLES[way]}: %{{customdata}}<extra></extra>",
            legendgroup=TITLES[way],
            showlegend=lane is tokens,
        )


def _bands(drawn: dict[Way, Schedule]) -> list[_Band]:
    """The parts from the top: one row per slot for each way, then the two charts."""
    bands, top = [], _GAP
    for way, schedule in drawn.items():
        title = f"<b>{TITLES[way]}</b>: {schedule.seconds:.2f} s, {len(schedule.passes)} passes"
        bands.append(_Band(title, top, _SLOT * schedule.slots))
        top += bands[-1].height + _GAP
    for title in ("<b>Tokens per forward pass</b>", "<b>KV bytes held</b>"):
        bands.append(_Band(title, top, _CHART))
        top += _CHART + _GAP
    return bands


def _axis(index: int) -> str:
    return "y" if index == 0 else f"y{index + 1}"


def _lay_out(figure: go.Figure, bands: Sequence[_Band], slots: int, ways: int) -> None:
    """Place every band, and give all of them one x axis below the last band."""
    height = bands[-1].top + bands[-1].height
    laid_out(figure, height=height + _LEGEND + _BELOW)
    figure.update_layout(
        barmode="overlay",
        margin={"l": 8, "r": 8, "t": _LEGEND, "b": _BELOW},
        hovermode="closest",
        legend={"y": 1, "traceorder": "normal"},
    )
    for index, band in enumerate(bands):
        low = max(0.0, 1 - (band.top + band.height) / height)
        domain = [low, 1 - band.top / height]
        axis: dict[str, object] = {"domain": domain, "anchor": "x"}
        if index < ways:
            axis |= {
                "range": [slots - 0.5, -0.5],
                "tickvals": [*range(slots)],
                "ticktext": [f"slot {slot + 1}" for slot in range(slots)],
                "ticklabelstandoff": 4,
                "showgrid": False,
                "zeroline": False,
            }
        else:
            axis |= {"rangemode": "tozero", "title": ("tokens", "MiB")[index - ways], "nticks": 4}
        figure.update_layout({f"yaxis{'' if index == 0 else index + 1}": axis})
        figure.add_annotation(
            text=band.title,
            x=0,
            xref="paper",
            xanchor="left",
            y=domain[1],
            yref="paper",
            yanchor="bottom",
            showarrow=False,
        )
    shared = {"anchor": _axis(len(bands) - 1), "side": "bottom", "zeroline": False, **_CURSOR}
    figure.update_layout(spikedistance=-1, xaxis=shared)
