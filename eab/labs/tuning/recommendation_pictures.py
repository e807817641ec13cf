"""A recommended threshold as a chart and sentences; predictions next to measurements."""

from collections.abc import Mapping, Sequence
from typing import Final

from eab.figures.charts import GREY, ORANGE, add_line, laid_out, line_style
from eab.figures.drawing import go
from eab.formatting import counted, listed
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.frontier import setting_points
from eab.labs.tuning.quantities import quantity
from eab.labs.tuning.recommendation import THRESHOLDS, Prediction, Recommendation, Wanted
from eab.labs.tuning.seed_means import Mean

CHECK_HEADINGS: Final = ("", "Predicted", "Measured with other seeds", "Inside the interval")


def pilot_figure(pilot: Sequence[Cell], advice: Recommendation) -> go.Figure:
    """The targeted quantity over the pilot's thresholds, with 95% intervals over the seeds."""
    wanted, number = advice.wanted
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
        x=[advice.threshold],
        y=[advice.value],
        marker={"symbol": "star", "size": 17, "color": ORANGE},
        hovertemplate=f"recommended, {hover}<extra></extra>",
    )
    # no labels for added thresholds, which are too close together
    ticks = [threshold for threshold in thresholds if threshold in THRESHOLDS] or thresholds
    figure.update_xaxes(
        title="entropy threshold (nats, log scale)",
        type="log",
        tickvals=ticks,
        ticktext=[f"{threshold:g}" for threshold in ticks],
    )
    figure.update_yaxes(title=f"{of.axis} per run", rangemode="tozero")
    return laid_out(figure, 320)


def recommendation_sentence(advice: Recommendation) -> str:
    """The threshold for the target and the range over seeds: "12 paths: 1.04 nats, 9 to 15 over 6
    seeds."; or that no threshold reaches the target, with the nearest ones.
    """
    wanted, number = advice.wanted
    asked = f"{number:,.0f} {_noun(number, wanted)}"
    if advice.near and _brief(advice.value) == _brief(number):
        return f"{asked}: {_nats(advice.threshold)}, {_over_seeds(advice)}."
    if advice.near:
        gives = f"{_nats(advice.threshold)} gives {_brief(advice.value)}"
        return f"About {asked}: {gives}, {_over_seeds(advice)}."
    if advice.beyond is None:
        low, high = advice.tried
        return (
            f"No threshold from {low:g} to {_nats(high)} gives {asked}: the nearest is "
            f"{_nats(advice.threshold)}, {_over_seeds(advice)}."
        )
    sides = sorted([(advice.threshold, advice.value), advice.beyond])
    (low, more), (high, fewer) = sides
    both = f"{_nats(low)} gives {_brief(more)}, {_nats(high)} gives {_brief(fewer)}."
    if advice.jumps:
        return f"No threshold gives {asked}: {both}"
    return f"{asked}: {both} Press Predict to look between them."


def basis_sentence(advice: Recommendation) -> str:
    """The data on which the prediction is based."""
    return f"Predicted from {counted(advice.prompts, 'prompt')} and " + (
        f"{counted(advice.seeds, 'seed')}; the interval is for the mean over other seeds (95%)."
        if advice.paths.low is not None
        else "1 seed, which has no interval."
    )


def _over_seeds(advice: Recommendation) -> str:
    low, high = (_brief(end) for end in advice.over_seeds)
    return f"{low if low == high else f'{low} to {high}'} over {counted(advice.seeds, 'seed')}"


def _brief(number: float) -> str:
    return f"{number:,.0f}" if number >= 9.95 else f"{number:.1f}".removesuffix(".0")


def _nats(threshold: float) -> str:
    return f"{threshold:g} {'nat' if threshold == 1 else 'nats'}"


def _noun(number: float, wanted: str) -> str:
    return wanted.removesuffix("s") if _brief(number) == "1" else wanted


def _predicted(of: Prediction, noun: str) -> str:
    interval = "" if of.low is None else f" ({_brief(of.low)} to {_brief(of.high or of.low)})"
    return f"{_brief(of.value)} {_noun(of.value, noun)}{interval}"


def check_rows(
    advice: Recommendation, measured: Mapping[Wanted, Mean]
) -> list[tuple[str, str, str, str]]:
    """Predictions and measurements: name, predicted, measured, whether inside the interval."""
    rows = []
    for name, predicted in _predictions(advice):
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


def check_sentence(advice: Recommendation, measured: Mapping[Wanted, Mean]) -> str:
    """Whether the measurement confirms the prediction."""
    if not measured:
        return "Not measured yet. Check runs this threshold with seeds that the pilot did not use."
    inside = {
        name: predicted.contains(measured[name].value) for name, predicted in _predictions(advice)
    }
    if None in inside.values():
        return "A pilot with one seed has no interval, so the check cannot confirm or refute it."
    held = [name for name, within in inside.items() if within]
    seeds = counted(measured["paths"].seeds, "other seed")
    if len(held) == 2:
        return f"With {seeds}, paths and tokens are both inside the predicted interval."
    missed = listed([name for name in inside if name not in held])
    return (
        f"With {seeds}, {missed} are outside the predicted interval; by chance, this happens in "
        "about one of twenty checks."
    )


def _predictions(advice: Recommendation) -> tuple[tuple[Wanted, Prediction], ...]:
    return ("paths", advice.paths), ("tokens", advice.tokens)
