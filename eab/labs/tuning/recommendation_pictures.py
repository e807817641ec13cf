"""A recommended threshold as a chart and in sentences; predicted and measured side by side."""

from collections.abc import Mapping, Sequence
from typing import Final

from eab.figures.charts import GREY, ORANGE, add_line, laid_out, line_style
from eab.figures.drawing import go
from eab.formatting import counted, listed
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.frontier import setting_points
from eab.labs.tuning.quantities import quantity
from eab.labs.tuning.recommendation import Prediction, Recommendation, Wanted
from eab.labs.tuning.seed_means import Mean

CHECK_HEADINGS: Final = ("", "Predicted", "Measured with other seeds", "Inside the interval")


def pilot_figure(pilot: Sequence[Cell], found: Recommendation) -> go.Figure:
    """What is wanted over the thresholds of the pilot, with 95 % intervals over its seeds."""
    wanted, number = found.wanted
    of = quantity(wanted)
    points = sorted(
        setting_points(pilot, quantity("tokens"), of),
        key=lambda point: point.config.entropy_threshold,
    )
    figure = go.Figure()
    thresholds = [point.config.entropy_threshold for point in points]
    hover = f"%{{x:.2f}} nats: %{{y:.1f}} {wanted}"
    means = [(x, point.gain.value) for x, point in zip(thresholds, points, strict=True)]
    add_line(figure, "pilot, mean and interval", means, line_style(0), hover)
    margins = [point.gain.margin or 0.0 for point in points]
    figure.update_traces(error_y={"type": "data", "array": margins, "thickness": 1, "width": 3})
    figure.add_hline(y=number, line={"color": GREY, "width": 2, "dash": "dash"})
    figure.add_scatter(
        name="recommended",
        mode="markers",
        x=[found.threshold],
        y=[(found.paths if wanted == "paths" else found.tokens).value],
        marker={"symbol": "star", "size": 17, "color": ORANGE},
        hovertemplate=f"recommended, {hover}<extra></extra>",
    )
    figure.update_xaxes(
        title="entropy threshold (nats, log scale)",
        type="log",
        tickvals=thresholds,
        ticktext=[f"{threshold:g}" for threshold in thresholds],
    )
    figure.update_yaxes(title=f"{of.axis} per run", rangemode="tozero")
    return laid_out(figure, 320)


def recommendation_sentence(found: Recommendation) -> str:
    """The recommended threshold, what it is predicted to give, and what that rests on."""
    wanted, number = found.wanted
    beginning = (
        f"Threshold {found.threshold:g} nats, for about {number:,.0f} {wanted}: "
        f"{_predicted(found.paths, 'paths')} for {_predicted(found.tokens, 'tokens')} per run."
    )
    if found.beyond is not None:
        threshold, mean = found.beyond
        beginning += f" The next threshold, {threshold:g} nats, gives {mean:,.0f} {wanted}."
    elif not found.reached:
        beginning += " No threshold of the pilot is closer to your target."
    return f"{beginning} Predicted from {counted(found.prompts, 'prompt')} and " + (
        f"{counted(found.seeds, 'seed')}; the interval is for the mean over other seeds (95 %)."
        if found.paths.low is not None
        else "1 seed, which has no interval."
    )


def _predicted(of: Prediction, noun: str) -> str:
    interval = "" if of.low is None else f" ({of.low:,.0f} to {of.high:,.0f})"
    return f"{of.value:,.0f} {noun}{interval}"


def check_rows(
    found: Recommendation, measured: Mapping[Wanted, Mean]
) -> list[tuple[str, str, str, str]]:
    """Predicted and measured side by side: what, predicted, measured, whether it is inside."""
    rows = []
    for name, predicted in _predictions(found):
        seen = measured.get(name)
        inside = None if seen is None else predicted.contains(seen.value)
        rows.append(
            (
                f"{name.capitalize()} per run",
                _predicted(predicted, name),
                "not measured yet" if seen is None else f"{seen.value:,.1f}",
                "–" if inside is None else ("yes" if inside else "no"),
            )
        )
    return rows


def check_sentence(found: Recommendation, measured: Mapping[Wanted, Mean]) -> str:
    """Whether the prediction held."""
    if not measured:
        return "Not measured yet. Check runs this threshold with seeds that the pilot did not use."
    inside = {
        name: predicted.contains(measured[name].value) for name, predicted in _predictions(found)
    }
    if None in inside.values():
        return "A pilot with one seed has no interval, so the check cannot confirm or refute it."
    held = [name for name, within in inside.items() if within]
    seeds = counted(measured["paths"].seeds, "other seed")
    if len(held) == 2:
        return f"With {seeds}, paths and tokens are both inside the predicted interval."
    missed = listed([name for name in inside if name not in held])
    return (
        f"With {seeds}, {missed} are outside the predicted interval; this happens by chance once "
        "in twenty times."
    )


def _predictions(found: Recommendation) -> tuple[tuple[Wanted, Prediction], ...]:
    return ("paths", found.paths), ("tokens", found.tokens)
