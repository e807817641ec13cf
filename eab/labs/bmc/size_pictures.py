"""The predicted r* compared with the best r tried, for the shapes of other models."""

from collections.abc import Mapping
from dataclasses import dataclass

from eab.figures.charts import GREY, add_timings, laid_out, line_style, log_axis
from eab.figures.drawing import go
from eab.figures.timings import ratio_words, repeats_words
from eab.formatting import listed
from eab.labs.bmc.results import ExperimentReport, SizeTimed
from eab.timing import NOTHING_YET, Timing, fastest, timings_by


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
