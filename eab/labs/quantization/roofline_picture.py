"""A chart and a sentence about what limits a decode step."""

from typing import Final

from eab.figures.charts import PURPLE, LineStyle, add_line, laid_out, line_style, log_axis
from eab.figures.drawing import go
from eab.figures.timings import in_ms
from eab.formatting import counted, human_bytes, times
from eab.labs.quantization.results import FormatReport, RunPoint, bound, ridge
from eab.timing import NOTHING_YET
from eab.weight_formats import AS_LOADED

_DRAWN: Final = (AS_LOADED, "bfloat16", "int8", "int4")
_ROWS: Final = tuple(2**power for power in range(9))


def roofline_figure(report: FormatReport, run: RunPoint | None = None) -> go.Figure:
    """The minimum time of a step over rows for some formats, with measured times."""
    figure = go.Figure()
    machine = report.machine
    if machine is None:
        return laid_out(figure)
    drawn = [measured for measured in report.formats if measured.weights in _DRAWN]
    for index, measured in enumerate(drawn):
        style, rows = line_style(index), sorted({*_ROWS, max(1.0, ridge(measured, machine))})
        figure.add_scatter(
            name=f"{measured.weights}: bound",
            mode="lines",
            x=rows,
            y=[1000 * bound(measured, machine, count) for count in rows],
            line={"color": style.colour, "dash": style.dash, "width": 2.5},
            hovertemplate=f"{measured.weights}, %{{x:.3g}} rows: %{{y:.3f}} ms<extra></extra>",
        )
        figure.add_scatter(
            name=f"{measured.weights}: measured",
            mode="markers",
            x=[step.rows for step in measured.steps],
            y=[1000 * step.timing.median for step in measured.steps],
            marker={"color": style.colour, "symbol": style.symbol, "size": 9},
            hovertemplate=f"{measured.weights}, %{{x}} rows: %{{y:.2f}} ms<extra></extra>",
        )
    if run is not None:
        add_line(
            figure,
            "your run",
            [(run.rows, 1000 * run.seconds)],
            LineStyle(PURPLE, "solid", "star"),
            "%{x:.1f} tokens per step: %{y:.2f} ms",
        )
        figure.update_traces(marker_size=16, selector={"name": "your run"})
    figure.update_xaxes(
        title="rows (tokens) per step (log scale)", type="log", tickvals=list(_ROWS)
    )
    figure.update_yaxes(log_axis("ms per step"))
    return laid_out(figure, 420)


def roofline_sentence(report: FormatReport) -> str:
    """Up to how many rows reading weights is the limit, and how close a step is to the bound."""
    machine = report.machine
    if machine is None or not report.formats:
        return NOTHING_YET
    full = report.formats[0]
    step = full.steps[0]
    over = step.timing.median / bound(full, machine, step.rows)
    return (
        f"Up to {ridge(full, machine):.0f} rows, a step is limited by reading the weights as "
        f"loaded ({human_bytes(full.read_bytes)}), and additional rows cost little. Measured, a "
        f"step of {counted(step.rows, 'row')} takes {in_ms(step.timing)}, {times(over)} the bound."
    )
