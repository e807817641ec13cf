"""Charts and sentences about the allocations of a run and its overhead by r."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from eab.analysis.kv_demand import StepAllocation
from eab.figures.charts import (
    BLUE,
    GREY,
    ORANGE,
    PURPLE,
    LineStyle,
    add_line,
    bar_pattern,
    laid_out,
)
from eab.figures.drawing import go, make_subplots
from eab.formatting import counted, listed, times

R_AXIS: Final = "r (steps per growth, log scale)"


def strip_figure(steps: Sequence[StepAllocation]) -> go.Figure:
    """Rows in use and spare rows over the steps, above the rows that growths copied."""
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, row_heights=[0.7, 0.3], vertical_spacing=0.06
    )
    numbers = [step.step for step in steps]
    parts = (
        (1, "in use", BLUE, "", [step.used for step in steps]),
        (1, "spare", GREY, ".", [step.spare for step in steps]),
        (2, "copied to grow", ORANGE, "/", [step.copied for step in steps]),
    )
    for row, name, colour, shape, rows in parts:
        figure.add_bar(
            name=name,
            x=numbers,
            y=rows,
            marker={"color": colour, "line": {"width": 0}, "pattern": bar_pattern(shape)},
            hovertemplate=f"step %{{x}}, rows {name}: %{{y:,}}<extra></extra>",
            row=row,
            col=1,
        )
    figure.update_yaxes(title="rows held", row=1, col=1)
    figure.update_yaxes(title="copied", row=2, col=1)
    figure.update_xaxes(title="step", row=2, col=1)
    figure.update_layout(barmode="stack", bargap=0)
    return laid_out(figure)


def strip_sentence(steps: Sequence[StepAllocation], r: int | str) -> str:
    """How often the tensors grow, how many rows that copies, and how many rows are spare."""
    growths = [step for step in steps[1:] if step.grew]
    copied = sum(step.copied for step in growths)
    spare = sum(step.spare for step in steps) / max(1, len(steps))
    return (
        f"At r = {r} the tensors grow {counted(len(growths), 'time')} after the prompt and copy "
        f"{counted(copied, 'row')}; on average they hold {counted(round(spare), 'spare row')} "
        "(counted from the run's events)."
    )


def run_curve_figure(curve: Mapping[int, tuple[float, float]], r: int | None) -> go.Figure:
    """The overhead of a run by r: predicted seconds of copies and of spare rows."""
    figure = go.Figure()
    parts = (
        (
            "copies and allocations",
            LineStyle(ORANGE, "dash", "circle"),
            [copying for copying, _ in curve.values()],
        ),
        (
            "spare rows, if attention reads them",
            LineStyle(GREY, "dot", "square"),
            [visiting for _, visiting in curve.values()],
        ),
        (
            "together",
            LineStyle(BLUE, "solid", "diamond"),
            [copying + visiting for copying, visiting in curve.values()],
        ),
    )
    for name, style, seconds in parts:
        points = [(x, 1000 * value) for x, value in zip(curve, seconds, strict=True)]
        add_line(figure, name, points, style, "r = %{x}: %{y:.2f} ms")
    if r is not None:
        mark_r(figure, r, f"r = {r}")
    figure.update_xaxes(title=R_AXIS, type="log", tickvals=list(curve))
    figure.update_yaxes(title="ms in the whole run, predicted", rangemode="tozero")
    return laid_out(figure)


def best_r(curve: Mapping[int, tuple[float, float]]) -> int:
    """The r with the least overhead."""
    return min(curve, key=lambda r: sum(curve[r]))


def run_curve_sentence(curve: Mapping[int, tuple[float, float]]) -> str:
    """The r with the least overhead for this run, and the overhead at both ends."""
    total = {r: sum(parts) for r, parts in curve.items()}
    best = best_r(curve)
    ends = [
        f"r = {r} takes {times(total[r] / total[best])}"
        for r in (min(total), max(total))
        if r != best and total[best] > 0
    ]
    beside = f"; {listed(ends)} as much" if ends else ""
    return (
        f"With padded attention, r = {best} is best for this run: {1000 * total[best]:.1f} ms of "
        f"overhead{beside} (rows counted, time predicted with the fitted constants). With sliced "
        "attention, only copies cost time."
    )


def mark_r(figure: go.Figure, r: int, words: str) -> None:
    """Mark this r by a vertical line; on a log axis, plotly places annotations by logarithm."""
    figure.add_vline(x=r, line={"color": PURPLE, "width": 2})
    figure.add_annotation(
        x=math.log10(r), y=1, yref="paper", text=words, showarrow=False, xanchor="left", xshift=6
    )
