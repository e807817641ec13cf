"""Charts, sentences and tables of sweeps; differences within the error count as no difference."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import pandas as pd

from eab.analysis.run_comparison import Mean
from eab.config import SETTINGS, BranchingConfig
from eab.figures.charts import BLUE, GREY, ORANGE, add_line, go, laid_out, line_style
from eab.formatting import counted, human_bytes
from eab.labs.measurement import Report
from eab.labs.tuning.evaluation_report import AUROC, GREEDY, INDEPENDENT, TREE
from eab.labs.tuning.frontier import (
    THRESHOLDS,
    Recommendation,
    SettingPoint,
    Wanted,
    baseline,
    beats,
    best_setting,
    beyond_baseline,
    has_effect,
    pareto_front,
    setting_points,
    varying,
)
from eab.labs.tuning.grid import COSTS, PATHS, Cell, Quantity
from eab.settings import Steps
from eab.timing import NO_DIFFERENCE

HEADINGS: Final = ("Setting", "Cost", "Gain", "Against independent sampling", "Front")
_SHAPING: Final = ("entropy_threshold", "branch_factor", "max_paths", "policy")


def label(setting: str) -> str:
    """The name of a setting as shown on the page, with its unit."""
    return f"{SETTINGS[setting].label}{' (nats)' if setting == 'entropy_threshold' else ''}"


def value_words(setting: str, value: Any) -> str:
    """The value of a setting as text."""
    widget = SETTINGS[setting].widget
    if isinstance(widget, Steps):
        return widget.label(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def setting_words(config: BranchingConfig, names: Sequence[str] = _SHAPING) -> str:
    """The settings that shape the tree: "entropy threshold 0.65, branch factor 3"."""
    named = [name for name in names if has_effect(name, config)]
    words = [
        f"{SETTINGS[name].label.lower()} {value_words(name, getattr(config, name))}"
        for name in named
    ]
    return ", ".join(words) or "the settings that do not vary"


def sweep_measures(points: Sequence[SettingPoint], cells: Sequence[Cell]) -> dict[str, str]:
    """What the means are taken over, and how many cells were made without the model."""
    seeds = sorted({point.gain.seeds for point in points}) or [0]
    return {
        "Prompts": f"{len({cell.prompt_id for cell in cells}):,}",
        "Seeds per setting": " to ".join(dict.fromkeys(map(str, (seeds[0], seeds[-1])))),
        "Cells": f"{len(cells):,}",
        "Resimulated": f"{sum(cell.made == 'resimulated' for cell in cells) / len(cells):.0%}",
    }


def answer_sentence(points: Sequence[SettingPoint], gain: Quantity) -> str:
    """The best setting, its gain, and how many other settings are not measurably worse."""
    if not points:
        return "No setting has run on every prompt yet."
    best = best_setting(points, gain)
    named = setting_words(best.config, varying(point.config for point in points))
    words = f"{named[0].upper()}{named[1:]}: {gain.label.lower()} {best.gain.value:.3g}"
    alike = sum(beats(best, other, gain) is not True for other in points if other is not best)
    if alike:
        others = f"{counted(alike, 'other setting')} {'is' if alike == 1 else 'are'} not"
        return f"{words}; {others} measurably worse."
    return f"{words}; every other setting is measurably worse." if points[1:] else f"{words}."


def mean_words(amount: Mean, of: Quantity) -> str:
    """A mean with its margin and unit: "4.2 ± 0.5 answers", "12.0 KiB"."""
    if of.unit == "bytes":
        margin = f" ± {human_bytes(amount.margin)}" if amount.margin is not None else ""
        return f"{human_bytes(amount.value)}{margin}"
    # A margin far below the last digit shown is a rounding error.
    is_rounding = amount.margin is not None and amount.margin < 1e-6 * max(1.0, abs(amount.value))
    margin = "" if amount.margin is None else f" ± {0 if is_rounding else amount.margin:.2g}"
    value = f"{amount.value:,.0f}" if amount.value >= 100 else f"{amount.value:.3g}"
    unit = of.unit.removesuffix("s") if value == "1" and not margin else of.unit
    return f"{value}{margin} {unit}".strip()


def setting_rows(
    points: Sequence[SettingPoint], cost: Quantity, gain: Quantity
) -> list[tuple[str, ...]]:
    """One row of text per setting, cheapest first."""
    front = {id(point) for point in pareto_front(points, gain)}
    line = baseline(points)
    names = varying(point.config for point in points)
    return [
        (
            setting_words(point.config, names),
            mean_words(point.cost, cost),
            mean_words(point.gain, gain),
            "–" if point.is_baseline else _difference(beyond_baseline(point, line), gain),
            "yes" if id(point) in front else "",
        )
        for point in sorted(points, key=lambda point: point.cost.value)
    ]


def _difference(difference: Mean | None, gain: Quantity) -> str:
    if difference is None:
        return "not compared"
    if not difference.excludes_zero:
        return NO_DIFFERENCE
    return f"{'+' if difference.value > 0 else ''}{mean_words(difference, gain)}"


def settings_table(points: Sequence[SettingPoint], cost: Quantity, gain: Quantity) -> pd.DataFrame:
    """One row of numbers per setting: all settings, means and standard errors over the seeds."""
    front = {id(point) for point in pareto_front(points, gain)}
    return pd.DataFrame(
        [
            {name: value for name, value in asdict(point.config).items() if name != "seed"}
            | {
                f"{cost.column}_mean": point.cost.value,
                f"{cost.column}_error": point.cost.error,
                f"{gain.column}_mean": point.gain.value,
                f"{gain.column}_error": point.gain.error,
                "seeds": point.gain.seeds,
                "cells": point.cells,
                "on_front": id(point) in front,
            }
            for point in points
        ]
    )


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
    place = {
        (_value_words(point.config, across), _value_words(point.config, down)): point
        for point in points
    }
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
        x=[_value_words(point.config, across) for point in points],
        y=[_value_words(point.config, down) for point in points],
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


def _value_words(config: BranchingConfig, setting: str) -> str:
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
