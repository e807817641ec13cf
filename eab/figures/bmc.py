"""BMC as charts and sentences: the allocations of a run, its overhead over r, and what the
experiments measured.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import plotly.graph_objects as go

from eab.bmc.demand import Held
from eab.bmc.results import (
    Experiment,
    LengthTimed,
    MemoryHeld,
    RejectionTimed,
    Report,
    RTimed,
    SizeTimed,
    overheads,
    predicted_r,
)
from eab.caches.growth import CostModel, overhead
from eab.figures.charts import (
    BLUE,
    GREY,
    NOTHING_YET,
    ORANGE,
    PURPLE,
    LineStyle,
    add_line,
    bar_pattern,
    laid_out,
    line_style,
    log_axis,
)
from eab.formatting import counted, human_bytes, listed, times

_MEASURED: Final = LineStyle(BLUE, "solid", "circle")
_PREDICTED: Final = LineStyle(ORANGE, "dash", "square")
_R_AXIS: Final = "r (steps per growth, log scale)"
_ROWS_AXIS: Final = "rows in use (log scale)"


class ExperimentFigure(NamedTuple):
    """How the report of an experiment is shown."""

    sentence: Callable[[Report], str]
    figure: Callable[[Report], go.Figure]


def strip_figure(steps: Sequence[Held]) -> go.Figure:
    """Rows in use and spare rows over the steps, and below them the rows that growths copied."""
    figure = go.Figure()
    numbers = [step.step for step in steps]
    parts = (
        ("in use", BLUE, "", [step.used for step in steps]),
        ("spare", GREY, ".", [step.spare for step in steps]),
        ("copied to grow", ORANGE, "/", [-step.copied for step in steps]),
    )
    for name, colour, shape, rows in parts:
        figure.add_bar(
            name=name,
            x=numbers,
            y=rows,
            customdata=[abs(count) for count in rows],
            marker={"color": colour, "line": {"width": 0}, "pattern": bar_pattern(shape)},
            hovertemplate=f"step %{{x}}, rows {name}: %{{customdata:,}}<extra></extra>",
        )
    figure.update_layout(barmode="relative", bargap=0)
    figure.update_xaxes(title="step")
    figure.update_yaxes(title="rows (counted); copied ones below 0")
    return laid_out(figure)


def strip_sentence(steps: Sequence[Held], r: int | str) -> str:
    """How often the tensors grow, what that copies, and how many rows are spare."""
    growths = [step for step in steps[1:] if step.grew]
    copied = sum(step.copied for step in growths)
    spare = sum(step.spare for step in steps) / max(1, len(steps))
    return (
        f"At r = {r} the tensors grow {counted(len(growths), 'time')} after the prompt and copy "
        f"{counted(copied, 'row')}; on average they hold {counted(round(spare), 'spare row')} "
        "(counted from the run's events)."
    )


def run_curve_figure(curve: Mapping[int, tuple[float, float]], r: int | None) -> go.Figure:
    """The overhead of the user's run over r.

    Args:
        curve: r -> predicted seconds of copies and allocations, and of spare rows.
        r: The r to mark; None for none.
    """
    figure = go.Figure()
    parts = (
        (
            "copies and allocations",
            LineStyle(ORANGE, "dash", "circle"),
            [copying for copying, _ in curve.values()],
        ),
        (
            "spare rows, if attention visits them",
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
        _mark(figure, r, f"r = {r}")
    figure.update_xaxes(title=_R_AXIS, type="log", tickvals=list(curve))
    figure.update_yaxes(
        title="ms in the whole run (rows counted, time predicted)", rangemode="tozero"
    )
    return laid_out(figure)


def run_curve_sentence(curve: Mapping[int, tuple[float, float]]) -> str:
    """Where this run's curve is lowest, and what its two ends cost."""
    total = {r: sum(parts) for r, parts in curve.items()}
    best = min(total, key=lambda r: total[r])
    ends = [
        f"r = {r} takes {times(total[r] / total[best])}"
        for r in (min(total), max(total))
        if r != best and total[best] > 0
    ]
    beside = f"; {listed(ends)} as much" if ends else ""
    return (
        f"With padded attention r = {best} is best for this run: {1000 * total[best]:.1f} ms of "
        f"overhead{beside} (rows counted, time predicted by the fitted constants). With sliced "
        "attention only the copies cost time."
    )


def growth_figure(report: Report) -> go.Figure:
    """Experiment 2: measured overhead over r beside the predicted one."""
    timed, fitted = report.of(RTimed), report.fitted
    measured = overheads(timed)
    figure = go.Figure()
    hover = "r = %{x}: %{y:.1f} ms"
    if fitted is not None and timed:
        predicted = [(r, 1000 * overhead(fitted.costs, timed[0].work, r)) for r in measured]
        add_line(figure, "predicted", predicted, _PREDICTED, hover)
    points = [(r, 1000 * seconds) for r, seconds in measured.items() if seconds > 0]
    add_line(figure, "measured", points, _MEASURED, hover)
    best = predicted_r(report)
    if best is not None:
        _mark(figure, best, f"predicted r* = {best}")
    figure.update_xaxes(title=_R_AXIS, type="log", tickvals=_powers_of_two(measured))
    figure.update_yaxes(log_axis("ms of growths and spare rows"))
    return laid_out(figure)


def growth_sentence(report: Report) -> str:
    """How good the predicted r* is, and what the smallest and the largest r cost."""
    measured, best = overheads(report.of(RTimed)), predicted_r(report)
    if best is None or not measured or measured[best] <= 0:
        return NOTHING_YET
    least = min(measured, key=lambda r: measured[r])
    rows = report.of(RTimed)[0].work.rows
    best_measured = (
        f"at the best r measured ({least}), {1000 * measured[least]:.0f} ms"
        if measured[least] > 0
        else f"at r = {least} they are lost in the noise of the measurement"
    )
    return (
        f"Writing {counted(rows, 'row')} with padded attention: at the predicted r* = {best}, "
        f"growths and spare rows take {1000 * measured[best]:.0f} ms; {best_measured}. Compared "
        f"with r*, copying at every step takes {times(measured[1] / measured[best])} as much, and "
        f"allocating all rows at the start {times(measured[max(measured)] / measured[best])} "
        "(measured)."
    )


def lengths_figure(report: Report) -> go.Figure:
    """Experiment 1: what one step takes at r = 1, by length."""
    timed = report.of(LengthTimed)
    figure = go.Figure()
    series = (
        ("allocate and copy", [(point.rows, 1000 * point.growth) for point in timed]),
        ("attention, all layers", [(point.rows, 1000 * point.attention) for point in timed]),
        (
            "whole step with the model",
            [(point.rows, 1000 * point.step) for point in timed if point.step is not None],
        ),
    )
    for index, (name, points) in enumerate(series):
        add_line(figure, name, points, line_style(index), "%{x} rows: %{y:.2f} ms")
    figure.update_xaxes(title=_ROWS_AXIS, type="log", tickvals=[point.rows for point in timed])
    figure.update_yaxes(log_axis("ms per step at r = 1, measured"))
    return laid_out(figure)


def lengths_sentence(report: Report) -> str:
    """How the time for copying grows beside that of attention."""
    timed = report.of(LengthTimed)
    if not timed:
        return NOTHING_YET
    first, last = timed[0], timed[-1]
    whole = max((point.rows for point in timed if point.step is not None), default=0)
    context = (
        f" The whole step is measured only up to {counted(whole, 'row')}: the next length no "
        "longer fits in the context of this model."
        if 0 < whole < last.rows
        else ""
    )
    return (
        f"At r = 1 a step with {first.rows:,} rows in use takes {1000 * first.growth:.2f} ms to "
        f"allocate and copy and {1000 * first.attention:.2f} ms for attention; with "
        f"{last.rows:,} rows it takes {1000 * last.growth:.2f} ms and "
        f"{1000 * last.attention:.2f} ms (medians, measured).{context}"
    )


def rejection_figure(report: Report) -> go.Figure:
    """Experiment 3: kept tokens per second over the share of rejected draft tokens, one line per
    way of keeping K and V.
    """
    timed = report.of(RejectionTimed)
    figure = go.Figure()
    for index, way in enumerate(dict.fromkeys(point.way for point in timed)):
        points = [
            (100 * point.rejection, point.tokens_per_second) for point in timed if point.way == way
        ]
        hover = "%{x:.0f} % rejected: %{y:.0f} tokens/s"
        add_line(figure, way, points, line_style(index), hover)
    figure.update_xaxes(title="probability that a draft token is rejected (%, simulated)")
    figure.update_yaxes(title="kept tokens per second (measured)", rangemode="tozero")
    return laid_out(figure)


def rejection_sentence(report: Report) -> str:
    """r* beside concatenation, over all rejection rates."""
    by_way: dict[str, dict[float, float]] = {}
    for point in report.of(RejectionTimed):
        by_way.setdefault(point.way, {})[point.rejection] = point.tokens_per_second
    ours, plain = by_way.get("r*"), by_way.get("concatenate and crop")
    if not ours or not plain or ours.keys() != plain.keys():
        return NOTHING_YET
    ratios = [ours[rate] / plain[rate] for rate in ours]
    drafts = report.of(RejectionTimed)[1].drafts
    return (
        f"With {counted(drafts, 'draft token')} per pass in the spare rows, r* gives "
        f"{min(ratios):.2f} to {max(ratios):.2f} times the tokens per second of concatenating and "
        "cropping (passes measured, rejections simulated; the time for drafting is not counted)."
    )


def sizes_figure(report: Report) -> go.Figure:
    """Overhead as a multiple of that at the best r tried, over r as a multiple of the predicted r*;
    one line per model. Models whose least overhead is lost in the noise are left out.
    """
    figure = go.Figure()
    for index, point in enumerate(_comparable(report)):
        least = dict(point.overheads)[point.best]
        points = [(r / point.predicted, seconds / least) for r, seconds in point.overheads]
        name = f"{point.name} (r* = {point.predicted})"
        hover = "%{x:.2f} r*: %{y:.2f} times the least"
        add_line(figure, name, points, line_style(index), hover)
    figure.add_vline(x=1, line={"color": GREY, "width": 1})
    figure.update_xaxes(
        title="r as a multiple of the predicted r* (log scale)",
        type="log",
        tickvals=[0.03, 0.1, 0.3, 1, 3, 10],
    )
    figure.update_yaxes(log_axis("overhead as a multiple of the least"))
    return laid_out(figure)


def sizes_sentence(report: Report) -> str:
    """How far the predicted r* is from the best r tried, per model."""
    if not report.of(SizeTimed):
        return NOTHING_YET
    comparable, words = _comparable(report), []
    for point in comparable:
        found = dict(point.overheads)
        words.append(f"{point.name} {times(found[point.predicted] / found[point.best])}")
    noisy = [point.name for point in report.of(SizeTimed) if point not in comparable]
    left_out = (
        f" Not shown: {listed(noisy)}, because the overhead there is too small to be told from the "
        "noise of the measurement."
        if noisy
        else ""
    )
    if not words:
        return left_out.strip()
    return (
        "Overhead at the predicted r* compared with the best r that was tried: "
        f"{listed(words)} (measured, KV part alone).{left_out}"
    )


def _comparable(report: Report) -> list[SizeTimed]:
    """The models for which every overhead is above 0; differences of noisy times can be below."""
    return [
        point
        for point in report.of(SizeTimed)
        if all(seconds > 0 for _, seconds in point.overheads)
    ]


def tensor_memory_figure(report: Report) -> go.Figure:
    """Peak bytes as a multiple of the bytes in use, over the length, one line per r."""
    figure = go.Figure()
    held = report.of(MemoryHeld)
    for index, r in enumerate(dict.fromkeys(point.r for point in held)):
        points = [
            (point.rows, point.peak_bytes / point.bytes_used) for point in held if point.r == r
        ]
        hover = "%{x} rows: %{y:.2f} times the bytes in use"
        add_line(figure, f"r = {r}", points, line_style(index), hover)
    lengths = sorted({point.rows for point in held})
    figure.update_xaxes(title=_ROWS_AXIS, type="log", tickvals=lengths)
    figure.update_yaxes(
        title="peak as a multiple of the bytes in use (log scale)",
        type="log",
        tickvals=[1, 1.5, 2, 3, 4, 6, 8],
    )
    return laid_out(figure)


def tensor_memory_sentence(report: Report) -> str:
    """What the smallest and the largest r hold at the shortest length."""
    held = report.of(MemoryHeld)
    if not held:
        return NOTHING_YET
    shortest = min(point.rows for point in held)
    low, *_, high = sorted(
        (point for point in held if point.rows == shortest), key=lambda point: point.r
    )
    return (
        f"With {counted(shortest, 'row')} in use ({human_bytes(low.bytes_used)}), r = {low.r} "
        f"holds {human_bytes(low.bytes_held)}, and {human_bytes(low.peak_bytes)} at its peak, "
        f"while a growth copies; r = {high.r} holds {human_bytes(high.bytes_held)}, spare rows "
        "included (measured from the tensors)."
    )


def fit_sentence(costs: CostModel) -> str:
    """The fitted constants, readable."""
    return (
        f"Copying a row takes {_micro(costs.copy_row)}, and each growth another "
        f"{_micro(costs.allocation)}. A spare row adds {_micro(costs.spare_row)} to a pass of one "
        f"token, and {_micro(costs.spare_query)} for each further token (fitted)."
    )


def fit_figure(report: Report) -> go.Figure:
    """The points of the two fits."""
    figure = go.Figure()
    fitted = report.fitted
    if fitted is not None:
        copies = [(rows, 1000 * seconds) for rows, seconds in fitted.copies]
        series = [("a growth, by rows in use", copies)]
        for count in sorted({tokens for tokens, _, _ in fitted.visits}):
            visits = [
                (rows, 1000 * seconds) for tokens, rows, seconds in fitted.visits if tokens == count
            ]
            series.append((f"a pass of {counted(count, 'token')}, by rows held", visits))
        for index, (name, points) in enumerate(series):
            add_line(figure, name, points, line_style(index), "%{x} rows: %{y:.2f} ms")
    figure.update_xaxes(title="rows")
    figure.update_yaxes(title="ms (medians, measured)", rangemode="tozero")
    return laid_out(figure)


EXPERIMENT_FIGURES: Final[Mapping[Experiment, ExperimentFigure]] = {
    "lengths": ExperimentFigure(lengths_sentence, lengths_figure),
    "growth": ExperimentFigure(growth_sentence, growth_figure),
    "rejection": ExperimentFigure(rejection_sentence, rejection_figure),
    "sizes": ExperimentFigure(sizes_sentence, sizes_figure),
    "memory": ExperimentFigure(tensor_memory_sentence, tensor_memory_figure),
}


def _mark(figure: go.Figure, r: int, words: str) -> None:
    """A vertical line at this r of a logarithmic axis.

    Plotly places an annotation on such an axis by its logarithm, but a line by its value.
    """
    figure.add_vline(x=r, line={"color": PURPLE, "width": 2})
    figure.add_annotation(
        x=math.log10(r), y=1, yref="paper", text=words, showarrow=False, xanchor="left", xshift=6
    )


def _powers_of_two(values: Mapping[int, float]) -> list[int]:
    return [value for value in values if value & (value - 1) == 0]


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} µs"
