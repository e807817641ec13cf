"""Charts of a sweep of settings: heat map, Pareto front, and parallel coordinates."""

from collections.abc import Sequence
from typing import Any, Final

from eab.config import BranchingConfig
from eab.figures.charts import BLUE, GREEN, GREY, ORANGE, byte_unit, laid_out
from eab.figures.drawing import go
from eab.labs.tuning.frontier import SettingPoint, baseline, has_effect, pareto_front
from eab.labs.tuning.quantities import Quantity
from eab.labs.tuning.seed_means import Mean
from eab.labs.tuning.sentences import label, setting_words, value_words

# From cream to blue; text on the tiles is readable on every colour in between.
_SCALE: Final = [[0.0, "#fdf6e3"], [0.5, "#a9d0ee"], [1.0, "#5aa3da"]]
_CELL_INK: Final = "#101820"  # readable on every colour of the scale
_ROW_HEIGHT: Final = 46  # pixels
_MOST_TILES_WITH_ERROR: Final = 60
_NO_EFFECT: Final = "no effect"


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
    return f"{setting_words(point.config)}<br>{gain.label}: {spread_words(point.gain)}"


def spread_words(mean: Mean) -> str:
    """A mean with the margin of its 95% interval, if any: "4.2 ± 0.5"."""
    return f"{mean.value:.3g}" + (f" ± {mean.margin:.2g}" if mean.margin is not None else "")


def pareto_figure(points: Sequence[SettingPoint], cost: Quantity, gain: Quantity) -> go.Figure:
    """Gain over cost, one marker per setting, with 95% intervals over the seeds."""
    figure = go.Figure()
    front, line = pareto_front(points, gain), baseline(points)
    scale, unit = _cost_scale(points, cost)
    fronted = {id(point) for point in front}
    others = [point for point in points if not point.is_baseline and id(point) not in fronted]
    on_front = [point for point in front if not point.is_baseline]
    groups = (
        ("other settings", others, GREY, "circle-open", None),
        ("independent", line, ORANGE, "square", "dash"),
        ("on the front", on_front, BLUE, "diamond", None),
    )
    numbers = {id(point): number for number, point in enumerate(points)}
    _add_front(figure, front, scale)
    for name, group, colour, symbol, dash in groups:
        if group:
            figure.add_scatter(
                name=name,
                mode="lines+markers" if dash else "markers",
                x=[point.cost.value / scale for point in group],
                y=[point.gain.value for point in group],
                error_x=_error([point.cost for point in group], colour, scale),
                error_y=_error([point.gain for point in group], colour),
                customdata=[numbers[id(point)] for point in group],
                marker={"color": colour, "symbol": symbol, "size": 10},
                line={"color": colour, "dash": dash or "solid", "width": 2},
                unselected={"marker": {"opacity": 1}},
                selected={"marker": {"size": 15}},
                hovertext=[
                    f"{_hover(point, gain)}<br>{cost.label}: {_cost_words(point.cost, scale, unit)}"
                    for point in group
                ],
                hovertemplate="%{hovertext}<extra></extra>",
            )
    figure.update_xaxes(title=f"{cost.axis_in(unit)} per run", rangemode="tozero")
    unit = gain.unit if gain.axis != gain.label else ""
    notes = ", ".join(filter(None, (unit, "" if gain.more_is_better else "less is better")))
    title = "<br>".join(filter(None, (gain.label, notes)))
    figure.update_yaxes(title=title, rangemode="tozero")
    return laid_out(figure, 335)


def _add_front(figure: go.Figure, front: Sequence[SettingPoint], scale: float) -> None:
    if len(front) > 1:
        figure.add_scatter(
            name="Pareto front",
            mode="lines",
            x=[point.cost.value / scale for point in front],
            y=[point.gain.value for point in front],
            line={"color": GREEN, "shape": "hv", "width": 2, "dash": "dot"},
            hoverinfo="skip",
        )


def _cost_scale(points: Sequence[SettingPoint], cost: Quantity) -> tuple[float, str]:
    if cost.unit != "bytes":
        return 1.0, cost.unit
    size, unit = byte_unit(max((point.cost.value for point in points), default=0.0))
    return float(size), unit


def _cost_words(mean: Mean, scale: float, unit: str) -> str:
    margin = f" ± {mean.margin / scale:.2g}" if mean.margin is not None else ""
    return f"{mean.value / scale:,.4g}{margin} {unit}"


def _error(means: Sequence[Mean], colour: str, scale: float = 1.0) -> dict[str, Any]:
    return {
        "type": "data",
        "array": [0.0 if mean.margin is None else mean.margin / scale for mean in means],
        "color": colour,
        "thickness": 1,
        "width": 3,
    }


def parallel_figure(
    points: Sequence[SettingPoint], names: Sequence[str], cost: Quantity, gain: Quantity
) -> go.Figure:
    """A line per setting through all varying settings, cost and gain; coloured by the gain."""
    scale, unit = _cost_scale(points, cost)
    gains = [point.gain.value for point in points]
    figure = go.Figure(
        go.Parcoords(
            dimensions=[
                *(_setting_axis(points, name) for name in names),
                {
                    "label": cost.axis_in(unit),
                    "values": [point.cost.value / scale for point in points],
                },
                {"label": gain.axis, "values": gains},
            ],
            line={"color": gains, "colorscale": [[0.0, ORANGE], [1.0, BLUE]], "showscale": False},
            unselected={"line": {"opacity": 0.08}},
        )
    )
    laid_out(figure, 380)
    figure.update_layout(margin={"l": 64, "r": 112, "t": 64, "b": 24})
    return figure


def _setting_axis(points: Sequence[SettingPoint], name: str) -> dict[str, Any]:
    """An axis with a setting's values at equal distances; "no effect", if needed, is lowest."""
    acting = [point for point in points if has_effect(name, point.config)]
    ticks = [*([_NO_EFFECT] if len(acting) < len(points) else []), *_values(acting, name)]
    places = {words: number for number, words in enumerate(ticks)}
    return {
        "label": label(name),
        "values": [
            places[_words(point.config, name) if has_effect(name, point.config) else _NO_EFFECT]
            for point in points
        ],
        "tickvals": list(places.values()),
        "ticktext": list(places),
    }
