"""BMC as charts and sentences: a run's allocations, its U-curve over r, and what the experiments
measured.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go

from eab.bmc.demand import Held
from eab.bmc.results import (
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
from eab.figures.charts import laid_out
from eab.formatting import counted, human_bytes, listed

BLUE, ORANGE, GREEN, PURPLE, GREY = "#1f83c9", "#d9661f", "#13946b", "#b0609f", "#8c8c8c"
SERIES: Final = (BLUE, ORANGE, GREEN, PURPLE, GREY, "#c29a16")
DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "x", "cross")
PATTERNS: Final = ("", "/", ".")


def strip_figure(steps: Sequence[Held]) -> go.Figure:
    """Rows in use and spare rows over the steps, and below them the rows that growths copied."""
    figure = go.Figure()
    numbers = [step.step for step in steps]
    parts = (
        ("in use", BLUE, "", [step.used for step in steps]),
        ("spare", GREY, ".", [step.spare for step in steps]),
        ("copied to grow", ORANGE, "/", [-step.copied for step in steps]),
    )
    for name, colour, pattern, rows in parts:
        figure.add_bar(
            name=name,
            x=numbers,
            y=rows,
            customdata=[abs(count) for count in rows],
            marker={"color": colour, "line": {"width": 0}, "pattern": _pattern(pattern)},
            hovertemplate=f"step %{{x}}: %{{customdata:,}} rows {name}<extra></extra>",
        )
    figure.update_layout(barmode="relative", bargap=0)
    figure.update_xaxes(title="step")
    figure.update_yaxes(title="rows (counted); copied ones below 0")
    return laid_out(figure)


def strip_sentence(steps: Sequence[Held], r: int | str) -> str:
    """How often the tensors grow, what that copies, and how many rows wait."""
    growths = [step for step in steps[1:] if step.grew]
    copied = sum(step.copied for step in growths)
    spare = sum(step.spare for step in steps) / max(1, len(steps))
    return (
        f"At r = {r} the tensors grow {counted(len(growths), 'time')} after the prompt and copy {copied:,} rows; "
        f"on average {spare:,.0f} rows are spare (counted from the run's events)."
    )


def run_curve_figure(curve: Mapping[int, tuple[float, float]], r: int | None) -> go.Figure:
    """The user's run over r. curve: r -> predicted seconds of copies and allocations, and of spare
    rows.
    """
    figure = go.Figure()
    parts = (
        ("copies and allocations", ORANGE, [copying for copying, _ in curve.values()]),
        (
            "spare rows, if attention visits them",
            GREY,
            [visiting for _, visiting in curve.values()],
        ),
        ("together", BLUE, [copying + visiting for copying, visiting in curve.values()]),
    )
    for (name, colour, seconds), dash, symbol in zip(
        parts, ("dash", "dot", "solid"), SYMBOLS, strict=False
    ):
        _line(
            figure,
            name,
            list(curve),
            [1000 * value for value in seconds],
            colour,
            dash,
            symbol,
            "r = %{x}: %{y:.2f} ms",
        )
    if r is not None:
        _mark(figure, r, f"r = {r}")
    figure.update_xaxes(title="r (steps per growth, log scale)", type="log", tickvals=list(curve))
    figure.update_yaxes(
        title="ms in the whole run (rows counted, time predicted)", rangemode="tozero"
    )
    return laid_out(figure)


def run_curve_sentence(curve: Mapping[int, tuple[float, float]]) -> str:
    """Where this run's curve is lowest, against the ends."""
    total = {r: sum(parts) for r, parts in curve.items()}
    best = min(total, key=lambda r: total[r])
    ends = [
        f"r = {r} takes {_times(total[r], total[best])}"
        for r in (min(total), max(total))
        if r != best
    ]
    beside = f"; {listed(ends)} as much" if ends else ""
    return (
        f"Under padded attention r = {best} is best for this run: {1000 * total[best]:.1f} ms of overhead{beside} "
        "(rows counted, time predicted by the fitted constants). Sliced attention pays the copies only."
    )


def growth_figure(report: Report) -> go.Figure:
    """Experiment 2: measured overhead over r beside the predicted one."""
    timed, fitted = report.of(RTimed), report.fitted
    measured = overheads(timed)
    figure = go.Figure()
    if fitted is not None and timed:
        predicted = [1000 * overhead(fitted.costs, timed[0].work, r) for r in measured]
        _line(
            figure,
            "predicted",
            list(measured),
            predicted,
            ORANGE,
            "dash",
            "square",
            "r = %{x}: %{y:.1f} ms",
        )
    values = [1000 * seconds for seconds in measured.values()]
    _line(
        figure, "measured", list(measured), values, BLUE, "solid", "circle", "r = %{x}: %{y:.1f} ms"
    )
    best = predicted_r(report)
    if best is not None:
        _mark(figure, best, f"predicted r* = {best}")
    figure.update_xaxes(
        title="r (steps per growth, log scale)", type="log", tickvals=_powers(measured)
    )
    figure.update_yaxes(title="ms of growths and spare rows (log scale)", type="log")
    return laid_out(figure)


def growth_sentence(report: Report) -> str:
    """How good the predicted r* is, and what the ends cost."""
    measured, best = overheads(report.of(RTimed)), predicted_r(report)
    if best is None or not measured or measured[best] <= 0:
        return "Nothing measured yet."
    least = min(measured, key=lambda r: measured[r])
    rows = report.of(RTimed)[0].work.rows
    return (
        f"Writing {rows:,} rows with padded attention: at the predicted r* = {best} growths and spare rows take "
        f"{1000 * measured[best]:.0f} ms, at the best r measured ({least}) {1000 * measured[least]:.0f} "
        "ms. Copying at every "
        f"step takes {_times(measured[1], measured[best])} as much, all rows up front "
        f"{_times(measured[max(measured)], measured[best])} (measured)."
    )


def lengths_figure(report: Report) -> go.Figure:
    """Experiment 1: what one step takes at r = 1, by length."""
    timed = report.of(LengthTimed)
    figure = go.Figure()
    whole = [point for point in timed if point.step is not None]
    lines = (
        ("allocate and copy", [(point.rows, point.growth) for point in timed]),
        ("attention, all layers", [(point.rows, point.attention) for point in timed]),
        ("whole step with the model", [(point.rows, point.step or 0.0) for point in whole]),
    )
    for place, (name, points) in enumerate(lines):
        rows, values = [row for row, _ in points], [1000 * seconds for _, seconds in points]
        _line(
            figure,
            name,
            rows,
            values,
            SERIES[place],
            DASHES[place],
            SYMBOLS[place],
            "%{x} rows: %{y:.2f} ms",
        )
    figure.update_xaxes(
        title="rows in use (log scale)", type="log", tickvals=[point.rows for point in timed]
    )
    figure.update_yaxes(title="ms per step at r = 1 (measured, log scale)", type="log")
    return laid_out(figure)


def lengths_sentence(report: Report) -> str:
    """How copying grows against attention."""
    timed = report.of(LengthTimed)
    if not timed:
        return "Nothing measured yet."
    first, last = timed[0], timed[-1]
    return (
        f"At r = 1 a step with {first.rows:,} rows in use allocates and copies for "
        f"{1000 * first.growth:.2f} ms and attends for "
        f"{1000 * first.attention:.2f} ms; with {last.rows:,} rows it is {1000 * last.growth:.2f} ms and "
        f"{1000 * last.attention:.2f} ms (medians, measured)."
    )


def rejection_figure(report: Report) -> go.Figure:
    """Experiment 3: kept tokens per second over the share of rejected drafts, one line per way."""
    timed = report.of(RejectionTimed)
    figure = go.Figure()
    for place, way in enumerate(dict.fromkeys(point.way for point in timed)):
        points = [point for point in timed if point.way == way]
        _line(
            figure,
            way,
            [100 * point.rejection for point in points],
            [point.tokens_per_second for point in points],
            SERIES[place],
            DASHES[place],
            SYMBOLS[place],
            "%{x:.0f} % rejected: %{y:.0f} tokens/s",
        )
    figure.update_xaxes(title="probability that a draft is rejected (%, simulated)")
    figure.update_yaxes(title="kept tokens per second (measured)", rangemode="tozero")
    return laid_out(figure)


def rejection_sentence(report: Report) -> str:
    """r* against concatenating, over all rates."""
    by_way: dict[str, dict[float, float]] = {}
    for point in report.of(RejectionTimed):
        by_way.setdefault(point.way, {})[point.rejection] = point.tokens_per_second
    ours, plain = by_way.get("r*"), by_way.get("concatenate and crop")
    if not ours or not plain or ours.keys() != plain.keys():
        return "Nothing measured yet."
    ratios = [ours[rate] / plain[rate] for rate in ours]
    drafts = report.of(RejectionTimed)[1].drafts
    return (
        f"With {drafts} drafts per pass in the spare rows, r* makes {min(ratios):.2f} to "
        f"{max(ratios):.2f} times the tokens per "
        "second of concatenating and cropping (passes measured, rejections simulated; making the drafts "
        "is not counted)."
    )


def sizes_figure(report: Report) -> go.Figure:
    """Overhead at each r by that at the best r tried, over r by the predicted r*, one line per
    model.
    """
    figure = go.Figure()
    for place, point in enumerate(report.of(SizeTimed)):
        least = min(seconds for _, seconds in point.overheads)
        xs = [r / point.predicted for r, _ in point.overheads]
        ys = [seconds / least for _, seconds in point.overheads]
        name = f"{point.name} (r* = {point.predicted})"
        _line(
            figure,
            name,
            xs,
            ys,
            SERIES[place],
            DASHES[place],
            SYMBOLS[place],
            "%{x:.2f} r*: %{y:.2f} times the least",
        )
    figure.add_vline(x=1, line={"color": GREY, "width": 1})
    figure.update_xaxes(
        title="r as a multiple of the predicted r* (log scale)",
        type="log",
        tickvals=[0.03, 0.1, 0.3, 1, 3, 10],
    )
    figure.update_yaxes(
        title="overhead, times the least (log scale)",
        type="log",
        tickvals=[1, 2, 5, 10, 20, 50, 100],
    )
    return laid_out(figure)


def sizes_sentence(report: Report) -> str:
    """How far the predicted r* is from the best r tried, per model."""
    words = []
    for point in report.of(SizeTimed):
        found = dict(point.overheads)
        words.append(f"{point.name} {_times(found[point.predicted], found[point.best])}")
    if not words:
        return "Nothing measured yet."
    return f"Overhead at the predicted r* against the best r that was tried: {listed(words)} (measured, KV part alone)."


def memory_figure(report: Report) -> go.Figure:
    """Bytes at the worst moment by bytes in use, over the length, one line per r."""
    figure = go.Figure()
    held = report.of(MemoryHeld)
    for place, r in enumerate(dict.fromkeys(point.r for point in held)):
        points = [point for point in held if point.r == r]
        _line(
            figure,
            f"r = {r}",
            [point.rows for point in points],
            [point.peak_bytes / point.bytes_used for point in points],
            SERIES[place % len(SERIES)],
            DASHES[place % len(DASHES)],
            SYMBOLS[place % len(SYMBOLS)],
            "%{x} rows: %{y:.2f} times the bytes in use",
        )
    figure.update_xaxes(
        title="rows in use (log scale)", type="log", tickvals=sorted({point.rows for point in held})
    )
    figure.update_yaxes(
        title="worst moment, times the bytes in use (log)",
        type="log",
        tickvals=[1, 1.5, 2, 3, 4, 6, 8],
    )
    return laid_out(figure)


def memory_sentence(report: Report) -> str:
    """What the largest and the smallest r hold at the shortest length."""
    held = report.of(MemoryHeld)
    if not held:
        return "Nothing measured yet."
    shortest = min(point.rows for point in held)
    low, *_, high = sorted(
        (point for point in held if point.rows == shortest), key=lambda point: point.r
    )
    return (
        f"With {shortest} rows in use ({human_bytes(low.bytes_used)}), r = {low.r} holds "
        f"{human_bytes(low.bytes_held)} and at "
        f"the worst moment {human_bytes(low.peak_bytes)}, while a growth copies; r = {high.r} holds "
        f"{human_bytes(high.bytes_held)}, spare rows included (measured from the tensors)."
    )


def fit_sentence(costs: CostModel) -> str:
    """The constants, readable."""
    return (
        f"Moving a row takes {_micro(costs.copy_row)}, a growth by itself {_micro(costs.allocation)}, "
        "and a spare row adds "
        f"{_micro(costs.spare_row)} to a pass of one token, {_micro(costs.spare_query)} more for each "
        "further token (fitted)."
    )


def fit_figure(report: Report) -> go.Figure:
    """The points of the two fits, and their lines."""
    figure = go.Figure()
    fitted = report.fitted
    if fitted is not None:
        tokens = sorted({found for found, _, _ in fitted.visits})
        sets = [("a growth, by rows in use", list(fitted.copies))]
        sets += [
            (
                f"a pass of {counted(number, 'token')}, by rows held",
                [(x, y) for found, x, y in fitted.visits if found == number],
            )
            for number in tokens
        ]
        for place, (name, points) in enumerate(sets):
            xs, ys = [x for x, _ in points], [1000 * y for _, y in points]
            _line(
                figure,
                name,
                xs,
                ys,
                SERIES[place],
                DASHES[place],
                SYMBOLS[place],
                "%{x} rows: %{y:.2f} ms",
            )
    figure.update_xaxes(title="rows")
    figure.update_yaxes(title="ms (medians, measured)", rangemode="tozero")
    return laid_out(figure)


def _line(
    figure: go.Figure,
    name: str,
    xs: Sequence[float],
    ys: Sequence[float],
    colour: str,
    dash: str,
    symbol: str,
    hover: str,
) -> None:
    figure.add_scatter(
        name=name,
        mode="lines+markers",
        x=list(xs),
        y=list(ys),
        line={"color": colour, "dash": dash, "width": 2.5},
        marker={"symbol": symbol, "size": 8},
        hovertemplate=f"{name}, {hover}<extra></extra>",
    )


def _mark(figure: go.Figure, r: int, words: str) -> None:
    """A line at this r of a logarithmic axis; plotly places a note there by its logarithm."""
    figure.add_vline(x=r, line={"color": PURPLE, "width": 2})
    figure.add_annotation(
        x=math.log10(r), y=1, yref="paper", text=words, showarrow=False, xanchor="left", xshift=6
    )


def _pattern(shape: str) -> dict[str, Any]:
    return {"shape": shape, "fillmode": "overlay", "fgcolor": "white", "size": 6, "solidity": 0.2}


def _powers(values: Mapping[int, float]) -> list[int]:
    return [value for value in values if value & (value - 1) == 0]


def _times(value: float, base: float) -> str:
    return f"{value / base:.2f} times" if base > 0 else "-"


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} µs"
