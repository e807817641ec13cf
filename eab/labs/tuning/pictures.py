"""Charts: the heat map of a sweep, the pilot of a threshold, and how well scores do."""

from collections.abc import Sequence
from typing import Final

from eab.config import BranchingConfig
from eab.figures.charts import BLUE, GREY, ORANGE, add_line, laid_out, line_style
from eab.figures.drawing import go
from eab.labs.measurement import Report
from eab.labs.tuning.cell import COSTS, PATHS, Cell, Quantity
from eab.labs.tuning.evaluation_report import AUROC, GREEDY, INDEPENDENT, TREE
from eab.labs.tuning.frontier import Mean, SettingPoint, setting_points
from eab.labs.tuning.recommendation import THRESHOLDS, Recommendation, Wanted
from eab.labs.tuning.sentences import label, mean_words, setting_words, value_words

# From cream to blue; text on the tiles is readable on every colour in between.
_SCALE: Final = [[0.0, "#fdf6e3"], [0.5, "#a9d0ee"], [1.0, "#5aa3da"]]
_CELL_INK: Final = "#101820"  # readable on every colour of the scale
_ROW_HEIGHT: Final = 46  # pixels
_MOST_TILES_WITH_ERROR: Final = 60


def heat_figure(
    points: Sequence[SettingPoint], quantity: Quantity, across: str, down: str
) -> go.Figure:
    """One tile per combination of two settings (`down` may be ""), coloured by the mean gain.

    Each tile has a marker on top to click, whose customdata is the index of the point.
    """
    figure = go.Figure()
    columns, rows = _values(points, across), _values(points, down)
    place = {(_words(point.config, across), _words(point.config, down)): point for point in points}
    grid = [[place.get((column, row)) for column in columns] for row in rows]
    figure.add_heatmap(
        x=columns,
        y=rows,
        z=[[None if point is None else point.gain.value for point in row] for row in grid],
        colorscale=_SCALE,
        reversescale=not quantity.more_is_better,
        showscale=False,  # the tiles show their values
        xgap=2,
        ygap=2,
        hoverinfo="skip",
    )
    brief = len(points) > _MOST_TILES_WITH_ERROR
    figure.add_scatter(
        x=[_words(point.config, across) for point in points],
        y=[_words(point.config, down) for point in points],
        customdata=list(range(len(points))),
        mode="markers+text",
        text=[_tile(point.gain, brief) for point in points],
        textfont={"color": _CELL_INK, "size": 12},
        marker={"symbol": "square", "size": 34, "color": "rgba(0,0,0,0)"},
        selected={"marker": {"color": "rgba(16,24,32,0.18)"}, "textfont": {"color": _CELL_INK}},
        unselected={"marker": {"opacity": 1}, "textfont": {"color": _CELL_INK}},
        hovertext=[_hover(point, quantity) for point in points],
        hovertemplate="%{hovertext}<extra></extra>",
        showlegend=False,
    )
    figure.update_xaxes(title=label(across), type="category", categoryarray=columns, showgrid=False)
    figure.update_yaxes(
        title=label(down) if down else "",
        type="category",
        categoryarray=rows,
        showgrid=False,
        showticklabels=bool(down),
    )
    laid_out(figure, max(200, 90 + _ROW_HEIGHT * len(rows)))
    figure.update_layout(margin_t=8)
    return figure


def _words(config: BranchingConfig, setting: str) -> str:
    return value_words(setting, getattr(config, setting)) if setting else ""


def _values(points: Sequence[SettingPoint], setting: str) -> list[str]:
    if not setting:
        return [""]
    values = sorted({getattr(point.config, setting) for point in points})
    return [value_words(setting, value) for value in values]


def _tile(mean: Mean, brief: bool) -> str:
    margin = "" if brief or not mean.margin else f"<br>± {mean.margin:.2g}"
    return f"{mean.value:.3g}{margin}"


def _hover(point: SettingPoint, gain: Quantity) -> str:
    return f"{setting_words(point.config)}<br>{gain.label}: {mean_words(point.gain, gain)}"


def pilot_figure(
    pilot: Sequence[Cell], wanted: Wanted, number: float, advice: Recommendation
) -> go.Figure:
    """The targeted quantity over the pilot's thresholds, with 95% intervals over the seeds."""
    of = PATHS if wanted == "paths" else COSTS[wanted]
    points = sorted(
        setting_points(pilot, COSTS["tokens"], of),
        key=lambda point: point.config.entropy_threshold,
    )
    figure = go.Figure()
    hover = f"%{{x:.2f}} nats: %{{y:.1f}} {wanted}"
    means = [(point.config.entropy_threshold, point.gain.value) for point in points]
    add_line(figure, "pilot, mean and interval", means, line_style(0), hover)
    margins = [point.gain.margin or 0.0 for point in points]
    figure.update_traces(error_y={"type": "data", "array": margins, "thickness": 1, "width": 3})
    figure.add_hline(y=number, line={"color": GREY, "width": 2, "dash": "dash"})
    figure.add_scatter(
        name="recommended",
        mode="markers",
        x=[advice.config.entropy_threshold],
        y=[advice.predicted[wanted].value],
        marker={"symbol": "star", "size": 17, "color": ORANGE},
        hovertemplate=f"recommended, {hover}<extra></extra>",
    )
    figure.update_xaxes(
        title="entropy threshold (nats, log scale)",
        type="log",
        tickvals=THRESHOLDS[::4],
        ticktext=[f"{threshold:g}" for threshold in THRESHOLDS[::4]],
    )
    figure.update_yaxes(title=f"{of.axis} per run", rangemode="tozero")
    return laid_out(figure, 320)


_LOOKS = {  # by way of sampling; the symbols are a second cue besides colour
    TREE: {"color": BLUE, "symbol": "circle"},
    INDEPENDENT: {"color": "#b35900", "symbol": "diamond"},
    GREEDY: {"color": "#6b6b6b", "symbol": "square"},
}


def evaluation_figure(report: Report) -> go.Figure:
    """The AUROC of each score for each way of sampling, with its bootstrap interval."""
    figure = go.Figure()
    for way, look in _LOOKS.items():
        rows = report.rows("scores", measure=AUROC, sampling=way)
        figure.add_scatter(
            name=f"{way}, {report.about['tokens'][way]:,} tokens",
            mode="markers",
            x=[row["value"] for row in rows],
            y=[row["score"] for row in rows],
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [row["high"] - row["value"] for row in rows],
                "arrayminus": [row["value"] - row["low"] for row in rows],
            },
            marker={**look, "size": 10},
            hovertemplate="%{y}: AUROC %{x:.3f}<extra></extra>",
        )
    figure.update_layout(
        xaxis_title="AUROC",
        yaxis={"autorange": "reversed", "automargin": True},
        scattermode="group",
    )
    return laid_out(figure)
