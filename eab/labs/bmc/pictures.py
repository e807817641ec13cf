"""Charts and sentences about the BMC experiments: medians and quartiles of repeats."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from eab.caches.growth import CostModel
from eab.figures.charts import (
    BLUE,
    GREY,
    LineStyle,
    add_line,
    add_timings,
    from_zero,
    laid_out,
    line_style,
    log_axis,
)
from eab.figures.drawing import go
from eab.figures.timings import in_ms, ratio_words, repeats_words
from eab.formatting import counted, human_bytes, listed
from eab.labs.bmc.results import (
    Experiment,
    ExperimentReport,
    LengthTimed,
    MemoryHeld,
    RejectionTimed,
    RTimed,
    SizeTimed,
    overheads,
    predicted_r,
)
from eab.labs.bmc.run_pictures import R_AXIS, mark_r
from eab.timing import NOTHING_YET, Timing, are_too_few, differs, fastest, timings_by


@dataclass(frozen=True, slots=True)
class SizeResult:
    """All repeats with one model's shape."""

    name: str
    predicted: int
    overheads: Mapping[int, Timing]  # seconds of growths and spare rows, by r

    @property
    def best(self) -> int:
        """The r with the smallest measured overhead."""
        return fastest(self.overheads)

    @property
    def comparable(self) -> bool:
        """Whether every overhead is above 0; differences of noisy times can be negative."""
        return all(timing.median > 0 for timing in self.overheads.values())


def size_results(report: ExperimentReport) -> list[SizeResult]:
    """One result per model."""
    timed = report.of(SizeTimed)
    return [
        SizeResult(
            name,
            next(point.predicted for point in timed if point.name == name),
            timings_by(pair for point in timed if point.name == name for pair in point.overheads),
        )
        for name in dict.fromkeys(point.name for point in timed)
    ]


def sizes_figure(report: ExperimentReport) -> go.Figure:
    """Overhead over r, as multiples of the least and of r*, without models lost in noise."""
    figure = go.Figure()
    comparable = [result for result in size_results(report) if result.comparable]
    for index, result in enumerate(comparable):
        least = result.overheads[result.best].median
        multiples = {r / result.predicted: timing for r, timing in result.overheads.items()}
        name = f"{result.name} (r* = {result.predicted})"
        hover = "%{x:.2f} r*: %{y:.2f} times the least"
        add_timings(figure, name, multiples, line_style(index), hover, scale=1 / least)
    figure.add_vline(x=1, line={"color": GREY, "width": 1})
    figure.update_xaxes(
        title="r as a multiple of the predicted r* (log scale)",
        type="log",
        tickvals=[0.03, 0.1, 0.3, 1, 3, 10],
    )
    return laid_out(figure, y=log_axis("overhead as a multiple of the least"))


def sizes_sentence(report: ExperimentReport) -> str:
    """For each model, how far the predicted r* is from the best r tried."""
    results = size_results(report)
    if not results:
        return NOTHING_YET
    words = [
        f"{result.name}: {_predicted_words(result)}" for result in results if result.comparable
    ]
    noisy = [result.name for result in results if not result.comparable]
    left_out = (
        f" Not shown: {listed(noisy)}, because their overhead is within the noise of the "
        "measurement."
        if noisy
        else ""
    )
    if not words:
        return left_out.strip()
    timings = [timing for result in results for timing in result.overheads.values()]
    return (
        "Overhead at the predicted r* compared with the best r that was tried: "
        f"{'; '.join(words)} ({repeats_words(timings)}, KV part alone).{left_out}"
    )


def _predicted_words(result: SizeResult) -> str:
    if result.predicted == result.best:
        return "r* is the best"
    return ratio_words(result.overheads[result.predicted], result.overheads[result.best])


_MEASURED: Final = LineStyle(BLUE, "solid", "circle")
_ROWS_AXIS: Final = "rows in use (log scale)"


class ExperimentFigure(NamedTuple):
    """How the report of an experiment is shown."""

    sentence: Callable[[ExperimentReport], str]
    figure: Callable[[ExperimentReport], go.Figure]


def growth_figure(report: ExperimentReport) -> go.Figure:
    """Experiment 2: measured overhead over r, and the predicted r*."""
    measured = overheads(report.of(RTimed))
    figure = go.Figure()
    above_zero = {r: timing for r, timing in measured.items() if timing.median > 0}
    add_timings(figure, "measured", above_zero, _MEASURED, "r = %{x}: %{y:.1f} ms")
    best = predicted_r(report)
    if best is not None:
        mark_r(figure, best, f"predicted r* = {best}")
    powers_of_two = [r for r in measured if r & (r - 1) == 0]
    figure.update_xaxes(title=R_AXIS, type="log", tickvals=powers_of_two)
    return laid_out(figure, y=log_axis("ms of growths and spare rows"))


def growth_sentence(report: ExperimentReport) -> str:
    """How good the predicted r* is, and what the smallest and the largest r cost."""
    measured, best = overheads(report.of(RTimed)), predicted_r(report)
    if best is None or not measured or measured[best].median <= 0:
        return NOTHING_YET
    rows = report.of(RTimed)[0].work.rows
    compared = [_beside(r, measured[r], measured[best]) for r in compared_r(measured, best)]
    return (
        f"Writing {counted(rows, 'row')} with padded attention: at the predicted r* = {best}, "
        f"growths and spare rows take {in_ms(measured[best])}; {'; '.join(compared)} "
        f"({repeats_words(measured.values())})."
    )


def compared_r(measured: Mapping[int, Timing], best: int) -> list[int]:
    """The r to compare with r*: the best one measured, the smallest and the largest."""
    chosen = dict.fromkeys((fastest(measured), min(measured), max(measured)))
    return [r for r in chosen if r != best]


def _beside(r: int, timing: Timing, ours: Timing) -> str:
    if timing.median <= 0:
        return f"at r = {r} the difference is within the noise"
    words = f"at r = {r}, {in_ms(timing)}"
    if are_too_few(timing, ours):
        return words
    of_ours = " that at r*" if differs(timing, ours) else ""
    return f"{words}: {ratio_words(timing, ours)}{of_ours}"


def lengths_figure(report: ExperimentReport) -> go.Figure:
    """Experiment 1: the time of one step at r = 1, by length."""
    figure, parts = go.Figure(), length_timings(report)
    for index, (name, timings) in enumerate(parts.items()):
        add_timings(figure, name, timings, line_style(index), "%{x} rows: %{y:.2f} ms")
    lengths = list(next(iter(parts.values())))
    figure.update_xaxes(title=_ROWS_AXIS, type="log", tickvals=lengths)
    return laid_out(figure, y=log_axis("ms per step at r = 1, measured"))


def length_timings(report: ExperimentReport) -> dict[str, dict[int, Timing]]:
    """Seconds per step by length, of each part of a step at r = 1."""
    timed = report.of(LengthTimed)
    return {
        "allocate and copy": timings_by((point.rows, point.growth) for point in timed),
        "attention, all layers": timings_by((point.rows, point.attention) for point in timed),
        "whole step with the model": timings_by(
            (point.rows, point.step) for point in timed if point.step is not None
        ),
    }


def lengths_sentence(report: ExperimentReport) -> str:
    """How the times for copying and for attention grow with the length."""
    growth, attention, step = length_timings(report).values()
    if not growth:
        return NOTHING_YET
    first, last, whole = min(growth), max(growth), max(step, default=0)
    context = (
        f" The whole step is measured only up to {counted(whole, 'row')}, because the next "
        "length exceeds the context of this model."
        if 0 < whole < last
        else ""
    )
    return (
        f"At r = 1 a step with {first:,} rows in use takes {in_ms(growth[first])} to allocate and "
        f"copy and {in_ms(attention[first])} for attention; with {last:,} rows it takes "
        f"{in_ms(growth[last])} and {in_ms(attention[last])} "
        f"({repeats_words(growth.values())}).{context}"
    )


def rejection_figure(report: ExperimentReport) -> go.Figure:
    """Experiment 3: kept tokens per second over the rejection rate, one line per way."""
    figure = go.Figure()
    for index, (way, rates) in enumerate(_rates_by_way(report).items()):
        percent = {100 * rejection: rate for rejection, rate in rates.items()}
        hover = "%{x:.0f}% rejected: %{y:.0f} tokens/s"
        add_timings(figure, way, percent, line_style(index), hover, scale=1.0)
    return laid_out(
        figure,
        x="probability that a draft token is rejected (%, simulated)",
        y=from_zero("kept tokens per second (measured)"),
    )


def _rates_by_way(report: ExperimentReport) -> dict[str, dict[float, Timing]]:
    """Tokens per second of each repeat, by way and rejection rate."""
    timed = report.of(RejectionTimed)
    return {
        way: timings_by(
            (point.rejection, point.tokens_per_second) for point in timed if point.way == way
        )
        for way in dict.fromkeys(point.way for point in timed)
    }


def rejection_sentence(report: ExperimentReport) -> str:
    """The speed of r* compared with concatenation, at each rejection rate."""
    pairs = rejection_pairs(report)
    if not pairs:
        return NOTHING_YET
    drafts = max(point.drafts for point in report.of(RejectionTimed))
    compared = [
        f"{ratio_words(ours, theirs)} at {rejection:.0%} rejected"
        for rejection, (ours, theirs) in pairs.items()
    ]
    rates = [rate for pair in pairs.values() for rate in pair]
    return (
        f"Speed of r* with {counted(drafts, 'draft token')} per pass in the spare rows, compared "
        f"with concatenating and cropping: {listed(compared)} ({repeats_words(rates)}; rejections "
        "simulated; drafting time not counted)."
    )


def rejection_pairs(report: ExperimentReport) -> dict[float, tuple[Timing, Timing]]:
    """For each rejection rate, the rates of r* and of concatenation."""
    by_way = _rates_by_way(report)
    ours, theirs = by_way.get("r*", {}), by_way.get("concatenate and crop", {})
    return {
        rejection: (ours[rejection], theirs[rejection]) for rejection in ours if rejection in theirs
    }


def tensor_memory_figure(report: ExperimentReport) -> go.Figure:
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


def tensor_memory_sentence(report: ExperimentReport) -> str:
    """The bytes held with the smallest and the largest r at the shortest length."""
    held = report.of(MemoryHeld)
    if not held:
        return NOTHING_YET
    shortest = min(point.rows for point in held)
    low, *_, high = sorted(
        (point for point in held if point.rows == shortest), key=lambda point: point.r
    )
    return (
        f"With {counted(shortest, 'row')} in use ({human_bytes(low.bytes_used)}), r = {low.r} "
        f"holds {human_bytes(low.bytes_held)}, with a peak of {human_bytes(low.peak_bytes)} "
        f"while a growth copies; r = {high.r} holds {human_bytes(high.bytes_held)}, including "
        "spare rows (measured from the tensors)."
    )


def fit_sentence(costs: CostModel) -> str:
    """The fitted constants in a sentence."""
    return (
        f"Copying a row takes {_micro(costs.copy_row)}, and each growth another "
        f"{_micro(costs.allocation)}. A spare row adds {_micro(costs.spare_row)} to a pass of one "
        f"token, and {_micro(costs.spare_query)} for each further token (fitted)."
    )


def fit_figure(report: ExperimentReport) -> go.Figure:
    """The points behind the two fits."""
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
    return laid_out(figure, x="rows", y=from_zero("ms (medians, measured)"))


EXPERIMENT_FIGURES: Final[Mapping[Experiment, ExperimentFigure]] = {
    "lengths": ExperimentFigure(lengths_sentence, lengths_figure),
    "growth": ExperimentFigure(growth_sentence, growth_figure),
    "rejection": ExperimentFigure(rejection_sentence, rejection_figure),
    "sizes": ExperimentFigure(sizes_sentence, sizes_figure),
    "memory": ExperimentFigure(tensor_memory_sentence, tensor_memory_figure),
}


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} µs"
