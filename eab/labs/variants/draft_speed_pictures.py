"""Whether draft tokens save time: measured times, the cost of a draft token, and a formula."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from eab.config import MAX_DRAFT
from eab.figures.charts import BLUE, ORANGE, error_bars, from_zero, laid_out
from eab.figures.drawing import go
from eab.figures.timings import MILLI, in_ms, repeats_words
from eab.formatting import counted, listed
from eab.labs.variants.draft_pictures import (
    LENGTH_AXIS,
    LENGTHS,
    NOTHING_DRAFTED,
    acceptance_rate,
    draft_length_results,
    is_one_path,
    plain_and_drafted,
)
from eab.labs.variants.results import RunTimed, VariantRuns
from eab.speculation.stats import best_length, fit_pass_seconds, speed_up
from eab.timing import NO_DIFFERENCE, NOTHING_YET, Timing, are_too_few, comparison, differs

# The cost of a draft token in passes of the model, if the model is a hundred times larger.
SMALL_DRAFT: Final = 0.05
ONE_PATH_ONLY: Final = (
    "This chart uses a formula for one path, but the run has several. Choose One text to see it."
)


@dataclass(frozen=True, slots=True)
class PassCosts:
    """Measured times, in units of a forward pass of one token."""

    draft_token: float  # time of drafting one token
    further_token: float  # time that each further token adds to a pass

    def of_pass(self, tokens: int) -> float:
        """Time of a pass with this many tokens."""
        return 1.0 + (tokens - 1) * self.further_token


def pass_costs(compared: VariantRuns) -> PassCosts | None:
    """Median costs over the repeats; None without passes of two different sizes."""
    repeats = repeated_costs(compared)
    if not repeats:
        return None
    return PassCosts(
        median(costs.draft_token for costs in repeats),
        median(costs.further_token for costs in repeats),
    )


def repeated_costs(compared: VariantRuns) -> list[PassCosts]:
    """The costs of each repeat."""
    names = [result.name for result in draft_length_results(compared)]
    rounds = zip(*(compared.times(name) for name in names), strict=False)
    return [costs for runs in rounds if (costs := _costs_of(runs)) is not None]


def _costs_of(runs: Sequence[RunTimed]) -> PassCosts | None:
    passes = [
        (run.tokens / run.forward_passes, run.forward_seconds / run.forward_passes)
        for run in runs
        if run.forward_passes
    ]
    fit, draft_tokens = fit_pass_seconds(passes), sum(run.draft_tokens for run in runs)
    if fit is None or not draft_tokens or sum(fit) <= 0:
        return None
    single = sum(fit)
    drafting = sum(run.draft_seconds for run in runs)
    return PassCosts(drafting / draft_tokens / single, fit[1] / single)


def speed_figure(compared: VariantRuns) -> go.Figure:
    """Milliseconds of all decode steps by draft length with quartiles, and of plain decoding."""
    plain, drafted = plain_and_drafted(draft_length_results(compared))
    figure = go.Figure()
    if plain is not None:
        low, high = MILLI * plain.seconds.low, MILLI * plain.seconds.high
        figure.add_hrect(y0=low, y1=high, fillcolor=ORANGE, opacity=0.25, line_width=0)
        figure.add_scatter(
            name="plain decoding",
            x=[result.name for result in drafted],
            y=[MILLI * plain.seconds.median] * len(drafted),
            mode="lines",
            line={"color": ORANGE, "dash": "dash", "width": 2},
            hovertemplate="plain: %{y:.1f} ms<extra></extra>",
        )
    figure.add_scatter(
        name="with draft tokens",
        x=[result.name for result in drafted],
        y=[MILLI * result.seconds.median for result in drafted],
        error_y=error_bars([result.seconds for result in drafted]),
        mode="markers",
        marker={"color": BLUE, "size": 11, "symbol": "diamond"},
        showlegend=True,
        hovertemplate="%{x}: %{y:.1f} ms<extra></extra>",
    )
    return laid_out(
        figure, x="draft length", y=from_zero("ms of all decode steps (median, quartiles)")
    )


def answer_sentence(compared: VariantRuns) -> str:
    """How often drafts are accepted, how many steps that gives, and whether it is faster here."""
    plain, drafted = plain_and_drafted(draft_length_results(compared))
    alpha = acceptance_rate(compared)
    if alpha is None or plain is None:
        return NOTHING_DRAFTED
    best = max(drafted, key=lambda result: result.steps_per_pass)
    right = (
        f"{alpha:.0%} of the verified draft tokens were accepted: up to "
        f"{best.steps_per_pass:.2f} steps per forward pass instead of 1 ({best.name})."
    )
    if any(are_too_few(plain.seconds, result.seconds) for result in drafted):
        return right
    different = [result for result in drafted if differs(result.seconds, plain.seconds)]
    quickest = min(different, key=lambda result: result.seconds.median, default=plain)
    if quickest.seconds.median >= plain.seconds.median:
        return f"{right} No draft length is measurably faster here."
    return f"{right} {quickest.name}: {comparison(quickest.seconds, plain.seconds)} here."


def paying_sentence(pays: VariantRuns, does_not: VariantRuns) -> str:
    """When drafting saves time, by a comparison in which it does and one in which it does not."""
    most, least = (
        max(result.steps_per_pass for result in draft_length_results(each))
        for each in (pays, does_not)
    )
    return (
        "Drafting pays where the text repeats what stands before it, as in an edit (up to "
        f"{most:.1f} steps per forward pass), and not where every word is new, as in an open story "
        f"({least:.1f})."
    )


def speed_sentence(compared: VariantRuns) -> str:
    """The draft lengths that are measurably faster or slower than plain decoding."""
    plain, drafted = plain_and_drafted(draft_length_results(compared))
    if plain is None or not drafted:
        return NOTHING_YET
    timings = [plain.seconds, *(result.seconds for result in drafted)]
    beginning = f"Plain decoding takes {in_ms(plain.seconds)}"
    if any(are_too_few(plain.seconds, result.seconds) for result in drafted):
        return f"{beginning} for all decode steps ({repeats_words(timings)})."
    told: dict[str, list[str]] = {"faster": [], "slower": [], NO_DIFFERENCE: []}
    for result in drafted:
        if not differs(result.seconds, plain.seconds):
            told[NO_DIFFERENCE].append(result.name)
        elif result.seconds.median > plain.seconds.median:
            told["slower"].append(result.name)
        else:
            speed = comparison(result.seconds, plain.seconds)
            told["faster"].append(f"{result.name} ({speed})")
    words = "; ".join(f"{verdict}: {listed(names)}" for verdict, names in told.items() if names)
    return f"{beginning} for all decode steps; {words} ({repeats_words(timings)})."


def surface_figure(compared: VariantRuns) -> go.Figure:
    """Speed-up over draft length and acceptance rate, computed from the measured costs."""
    costs, alpha = pass_costs(compared), acceptance_rate(compared)
    figure = go.Figure()
    if costs is None or alpha is None or not is_one_path(compared):
        return laid_out(figure)
    _add_surface(figure, costs)
    best = best_length(alpha, costs.draft_token, costs.of_pass)
    figure.add_scatter(
        x=[best],
        y=[alpha],
        mode="markers",
        marker={
            "color": "white",
            "size": 13,
            "symbol": "diamond",
            "line": {"color": "black", "width": 1},
        },
        hovertemplate=f"{counted(best, 'draft token')} at acceptance rate {alpha:.2f}"
        "<extra></extra>",
        showlegend=False,
    )
    words = "predicted best" if best else "predicted: no draft saves time"
    _add_label(figure, best, alpha, words, below=alpha > 0.2)
    figure.update_xaxes(title=LENGTH_AXIS)
    figure.update_yaxes(title="acceptance rate", range=[0, 1])
    return laid_out(figure)


def _add_surface(figure: go.Figure, costs: PassCosts) -> None:
    rates = [step / 50 for step in range(51)]
    values = [
        [speed_up(rate, length, costs.draft_token, costs.of_pass) for length in LENGTHS]
        for rate in rates
    ]
    surface: dict[str, Any] = {"x": LENGTHS, "y": rates, "z": values}
    hover = "draft length %{x}, acceptance rate %{y:.2f}: %{z:.2f} times as fast<extra></extra>"
    figure.add_heatmap(
        **surface,
        colorscale="Cividis",
        colorbar={"title": {"text": "times<br>as fast"}},
        hovertemplate=hover,
    )
    figure.add_contour(
        **surface,
        contours={"coloring": "none", "start": 1.0, "end": 1.0, "size": 1.0},
        line={"color": "white", "width": 3, "dash": "dot"},
        showscale=False,
        showlegend=False,
        hoverinfo="skip",
    )
    last = LENGTHS[-1] - 2
    paying = next((rate for rate, row in zip(rates, values, strict=True) if row[last] >= 1), None)
    if paying is not None:
        _add_label(figure, last, paying, "dotted: as fast as plain decoding", below=True)


def _add_label(figure: go.Figure, x: float, y: float, words: str, below: bool) -> None:
    figure.add_annotation(
        x=x,
        y=y,
        text=words,
        ax=-30 if x > MAX_DRAFT / 2 else 40,
        ay=40 if below else -40,
        font={"color": "black"},
        bgcolor="white",
        bordercolor="black",
        borderpad=3,
        arrowcolor="white",
    )


def surface_sentence(compared: VariantRuns) -> str:
    """The cost of a draft token, the best length with it, and the gain with a much larger model."""
    if not is_one_path(compared):
        return ONE_PATH_ONLY
    costs, alpha = pass_costs(compared), acceptance_rate(compared)
    if costs is None or alpha is None:
        return "No speed-up can be computed yet. Press Run to measure."
    here = _best_words(alpha, costs, repeated_costs(compared))
    large = PassCosts(SMALL_DRAFT, further_token=0.0)
    small = _best_words(alpha, large, [large])
    measured = repeats_words(result.seconds for result in draft_length_results(compared))
    return (
        f"A draft token costs {costs.draft_token:.2f} of a forward pass of the model, and one more "
        f"token in a pass {costs.further_token:.2f} ({measured}). "
        f"With these costs, {here}; at {SMALL_DRAFT} per draft token, and if more tokens in a pass "
        f"cost nothing, as for a large model on a GPU, {small} (computed)."
    )


def _best_words(alpha: float, costs: PassCosts, repeats: Sequence[PassCosts]) -> str:
    best = best_length(alpha, costs.draft_token, costs.of_pass)
    gains = Timing(
        tuple(speed_up(alpha, best, costs.draft_token, costs.of_pass) for costs in repeats)
    )
    if not best or gains.low <= 1:
        return "no draft length is measurably faster than plain decoding"
    speed = speed_up(alpha, best, costs.draft_token, costs.of_pass)
    return f"{counted(best, 'draft token')} would be {speed:.2f} times as fast as plain decoding"
