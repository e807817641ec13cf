"""The predicted r* against the best r that was tried, for the shapes of other models."""

from collections.abc import Mapping
from dataclasses import dataclass

import plotly.graph_objects as go

from eab.figures.charts import GREY, NOTHING_YET, laid_out, line_style, log_axis
from eab.figures.timings import add_timings, as_long, repeats_words
from eab.formatting import listed
from eab.labs.bmc.results import Report, SizeTimed
from eab.timing import Claim, Timing, fastest, timings_by


@dataclass(frozen=True, slots=True)
class SizeResult:
    """All repeats of one model's shape."""

    name: str
    predicted: int
    overheads: Mapping[int, Timing]  # seconds of growths and spare rows, by r

    @property
    def best(self) -> int:
        """The r with the smallest measured overhead."""
        return fastest(self.overheads)

    @property
    def comparable(self) -> bool:
        """Whether every overhead is above 0; differences of noisy times can be below."""
        return all(timing.median > 0 for timing in self.overheads.values())


def size_results(report: Report) -> list[SizeResult]:
    """One per model."""
    timed = report.of(SizeTimed)
    return [
        SizeResult(
            name,
            next(one.predicted for one in timed if one.name == name),
            timings_by(pair for one in timed if one.name == name for pair in one.overheads),
        )
        for name in dict.fromkeys(one.name for one in timed)
    ]


def sizes_figure(report: Report) -> go.Figure:
    """Overhead as a multiple of that at the best r tried, over r as a multiple of the predicted r*;
    one line per model. Models whose least overhead is lost in the noise are left out.
    """
    figure = go.Figure()
    comparable = [one for one in size_results(report) if one.comparable]
    for index, one in enumerate(comparable):
        least = one.overheads[one.best].median
        multiples = {r / one.predicted: timing for r, timing in one.overheads.items()}
        name = f"{one.name} (r* = {one.predicted})"
        hover = "%{x:.2f} r*: %{y:.2f} times the least"
        add_timings(figure, name, multiples, line_style(index), hover, scale=1 / least)
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
    results = size_results(report)
    if not results:
        return NOTHING_YET
    words = [f"{one.name}: {_predicted_words(one)}" for one in results if one.comparable]
    noisy = [one.name for one in results if not one.comparable]
    left_out = (
        f" Not shown: {listed(noisy)}, because their overhead is within the noise of the "
        "measurement."
        if noisy
        else ""
    )
    if not words:
        return left_out.strip()
    timings = [timing for one in results for timing in one.overheads.values()]
    return (
        "Overhead at the predicted r* compared with the best r that was tried: "
        f"{'; '.join(words)} ({repeats_words(timings)}, KV part alone).{left_out}"
    )


def _predicted_words(one: SizeResult) -> str:
    if one.predicted == one.best:
        return "r* is the best"
    return as_long(one.overheads[one.predicted], one.overheads[one.best])


def size_claims(report: Report) -> list[Claim]:
    """The comparisons of `sizes_sentence`."""
    return [
        Claim(
            f"{one.name}, r* = {one.predicted} against r = {one.best}",
            one.overheads[one.predicted],
            one.overheads[one.best],
        )
        for one in size_results(report)
        if one.comparable and one.predicted != one.best
    ]
