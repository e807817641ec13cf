"""Plain decoding beside one drafter at several draft lengths: what was measured, and what the
formulas say.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go

from eab import token_text
from eab.analysis.sweep import Sweep
from eab.config import MAX_DRAFT
from eab.figures.charts import BLUE, ORANGE, laid_out
from eab.figures.sweep_table import SweepRow
from eab.formatting import counted
from eab.run import Run
from eab.speculation.formulas import best_length, expected_tokens, speed_up
from eab.speculation.stats import SpeculationStats, fit_pass_seconds, speculation_stats

LENGTHS: Final = tuple(range(MAX_DRAFT + 1))  # draft lengths on the axes
# The cost of a draft token, in passes of the model, where the model is a hundred times larger.
SMALL_DRAFT: Final = 0.05
NOTHING_DRAFTED: Final = "No draft tokens: the drafter found nothing to propose."
ONE_PATH_ONLY: Final = (
    "When drafting pays is computed with a formula for one path, and this run has several. Choose "
    "One text to see it."
)
_LENGTH_AXIS: Final = "draft length (draft tokens per pass)"
_OF_A_TREE: Final = (
    "A step of a tree ends only when all paths have reached it, so its slowest path decides. The "
    "formula holds for one path and is not drawn here."
)
_NO_VALUE: Final = "–"
# What a row is called, the column of `outcome_table`, and how its numbers are written.
_OUTCOMES: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("times as fast as plain", "times as fast", "{:.2f}".format),
    ("forward passes", "forward passes", "{:,.0f}".format),
    ("steps per pass", "steps per pass", "{:.2f}".format),
    ("steps per pass (formula)", "steps per pass (formula)", "{:.2f}".format),
    ("draft tokens", "draft tokens", "{:,.0f}".format),
    ("of these, verified", "verified", "{:,.0f}".format),
    ("of these, accepted", "accepted", "{:,.0f}".format),
    ("accepted / verified", "accepted of verified", "{:.0%}".format),
    ("seconds", "seconds", "{:.2f}".format),
    ("of these, drafting", "of which drafting", "{:.2f}".format),
)


@dataclass(frozen=True, slots=True)
class DraftLengthResult:
    """What became of the draft tokens of one variant.

    Attributes:
        name: The variant.
        length: Its draft length; None for plain decoding, 0 for adaptive.
        stats: Counts and times of its run.
    """

    name: str
    length: int | None
    stats: SpeculationStats

    @property
    def steps_per_pass(self) -> float:
        """Steps per forward pass; 0 before there is one."""
        return self.stats.steps_per_pass or 0.0


@dataclass(frozen=True, slots=True)
class PassCosts:
    """Measured times, in forward passes of one token.

    Attributes:
        draft_token: Time of drafting one token.
        further_token: Time that each further token adds to a pass.
    """

    draft_token: float
    further_token: float

    def of_pass(self, tokens: int) -> float:
        """Time of a pass of `tokens` tokens."""
        return 1.0 + (tokens - 1) * self.further_token


def draft_length_results(sweep: Sweep) -> list[DraftLengthResult]:
    """All variants that have decided a step after the one that the prompt's pass decides."""
    found = []
    for name, run in sweep.pairs:
        config = run.started.config
        if len(run.steps) > 1:
            length = None if config.drafter == "none" else config.draft_length
            found.append(DraftLengthResult(name, length, speculation_stats(run)))
    return found


def is_one_path(sweep: Sweep) -> bool:
    """Whether no run forked: the formulas hold for one path only."""
    return all(len(run.paths) == 1 for run in sweep.runs)


def acceptance_rate(sweep: Sweep) -> float | None:
    """Accepted over verified draft tokens of all variants (measured); None if none was verified."""
    results = draft_length_results(sweep)
    accepted = sum(result.stats.accepted for result in results)
    verified = accepted + sum(result.stats.rejected for result in results)
    return accepted / verified if verified else None


def pass_costs(sweep: Sweep) -> PassCosts | None:
    """What draft tokens and longer passes cost in these runs; None before there are passes of two
    sizes.
    """
    results, fit = draft_length_results(sweep), fit_pass_seconds(run for _, run in sweep.pairs)
    draft_tokens = sum(result.stats.draft_tokens for result in results)
    if fit is None or not draft_tokens:
        return None
    start, slope = fit
    single = start + slope
    drafting = sum(result.stats.draft_seconds for result in results)
    return PassCosts(drafting / draft_tokens / single, slope / single) if single > 0 else None


def outcome_table(sweep: Sweep) -> pd.DataFrame:
    """A row per variant. All measured, except for the column that says formula."""
    alpha = acceptance_rate(sweep) if is_one_path(sweep) else None
    results = draft_length_results(sweep)
    plain = results[0].stats.seconds if results and results[0].length is None else None
    return pd.DataFrame([_outcome_row(result, alpha, plain) for result in results])


def _outcome_row(
    result: DraftLengthResult, alpha: float | None, plain_seconds: float | None
) -> dict[str, Any]:
    stats = result.stats
    return {
        "draft length": result.name,
        "times as fast": plain_seconds / stats.seconds if plain_seconds and stats.seconds else None,
        "forward passes": stats.forward_passes,
        "steps per pass": stats.steps_per_pass,
        "steps per pass (formula)": expected_tokens(alpha, result.length)
        if result.length and alpha
        else None,
        "draft tokens": stats.draft_tokens,
        "verified": stats.accepted + stats.rejected,
        "accepted": stats.accepted,
        "accepted of verified": stats.acceptance_rate,
        "seconds": stats.seconds,
        "of which drafting": stats.draft_seconds,
    }


def outcome_rows(sweep: Sweep) -> list[SweepRow]:
    """The same, to read: a row per measure, with a cell per variant."""
    table = outcome_table(sweep)
    return [
        SweepRow(
            measure, tuple(_NO_VALUE if pd.isna(one) else written(one) for one in table[column])
        )
        for measure, column, written in _OUTCOMES
        if column in table and not table[column].isna().all()
    ]


def tokens_figure(sweep: Sweep) -> go.Figure:
    """Steps per forward pass over the draft length: measured points; of one path also the formula
    at the measured acceptance rate, as a line.
    """
    alpha = acceptance_rate(sweep) or 0.0
    fixed = [result for result in draft_length_results(sweep) if result.length]
    figure = go.Figure()
    if is_one_path(sweep):
        figure.add_scatter(
            name=f"formula, acceptance rate {alpha:.2f}",
            x=LENGTHS,
            y=[expected_tokens(alpha, length) for length in LENGTHS],
            mode="lines",
            line={"color": ORANGE, "dash": "dash", "width": 2},
        )
    figure.add_scatter(
        name="measured",
        x=[result.length for result in fixed],
        y=[result.stats.steps_per_pass for result in fixed],
        mode="markers",
        marker={"color": BLUE, "size": 11, "symbol": "diamond"},
        showlegend=True,
        hovertemplate="draft length %{x}: %{y:.2f} steps per pass<extra></extra>",
    )
    figure.update_xaxes(title=_LENGTH_AXIS)
    figure.update_yaxes(title="steps per forward pass", rangemode="tozero")
    return laid_out(figure)


def tokens_sentence(sweep: Sweep) -> str:
    """The acceptance rate, and how many steps a pass gives with it."""
    alpha = acceptance_rate(sweep)
    if alpha is None:
        return NOTHING_DRAFTED
    drafted = [result for result in draft_length_results(sweep) if result.length is not None]
    best = max(drafted, key=lambda result: result.steps_per_pass)
    gained = f"up to {best.steps_per_pass:.2f} steps instead of 1 ({best.name}, measured)"
    if best.steps_per_pass < 1.005:
        gained = "no more than 1 step with any draft length (measured)"
    of_a_tree = "" if is_one_path(sweep) else f" {_OF_A_TREE}"
    return (
        f"A draft token is accepted with probability {alpha:.2f} if those before it were "
        f"(measured). A forward pass gives {gained}.{of_a_tree}"
    )


def surface_figure(sweep: Sweep) -> go.Figure:
    """Speed-up over draft length and acceptance rate, computed with the measured costs; the diamond
    is the best length at this sweep's acceptance rate.
    """
    costs, alpha = pass_costs(sweep), acceptance_rate(sweep)
    figure = go.Figure()
    if costs is None or alpha is None or not is_one_path(sweep):
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
        hovertemplate=(
            f"{counted(best, 'draft token')} at acceptance rate {alpha:.2f}<extra></extra>"
        ),
        showlegend=False,
    )
    _add_label(figure, best, alpha, "best here", below=alpha > 0.2)
    figure.update_xaxes(title=_LENGTH_AXIS)
    figure.update_yaxes(title="acceptance rate", range=[0, 1])
    return laid_out(figure)


def _add_surface(figure: go.Figure, costs: PassCosts) -> None:
    """The speed-up as colours, and a line where it is 1."""
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
    """Words with an arrow to a point, readable on every colour."""
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


def surface_sentence(sweep: Sweep) -> str:
    """What a draft token costs here, what that allows, and what a much larger model would gain."""
    if not is_one_path(sweep):
        return ONE_PATH_ONLY
    costs, alpha = pass_costs(sweep), acceptance_rate(sweep)
    if costs is None or alpha is None:
        return "There is nothing to compute a speed-up from yet."
    here = _best_words(alpha, costs.draft_token, costs.of_pass)
    small = _best_words(alpha, SMALL_DRAFT, lambda tokens: 1.0)
    return (
        f"A draft token costs {costs.draft_token:.2f} of a forward pass of the model, and one more "
        f"token in a pass {costs.further_token:.2f} (measured). With these costs, {here} "
        f"(computed). If a draft token cost {SMALL_DRAFT} of a pass, and a longer pass no more "
        f"than a short one, as for a large model on a GPU, {small} (computed). A small model gains "
        "little, because no much smaller model can draft for it."
    )


def _best_words(alpha: float, draft_cost: float, pass_cost: Callable[[int], float]) -> str:
    best = best_length(alpha, draft_cost, pass_cost)
    if not best:
        return "no draft length is faster than plain decoding"
    speed = speed_up(alpha, best, draft_cost, pass_cost)
    return f"{counted(best, 'draft token')} would be {speed:.2f} times as fast as plain decoding"


def chips(run: Run, leaf: int) -> list[dict[str, str]]:
    """The text of a leaf, token by token.

    Returns:
        The `text` of each token and its `kind`: `own` if the model wrote it without a draft,
        `accepted` if it was a draft token, `rejected` for the first rejected draft token of a pass,
        which stands before the token that came instead.
    """
    lineage = {path for path in run.lineage(leaf) if run.paths[path].tokens}
    accepted, rejected = set(), {}
    for one in run.speculations:
        if one.path in lineage:
            accepted |= set(range(one.step, one.step + one.accepted))
            if one.verified > one.accepted:
                rejected[one.step + one.accepted] = one.draft_texts[one.accepted]
    found = []
    for token in run.tokens(leaf):
        if token.step in rejected:
            found.append({"kind": "rejected", "text": token_text.visible(rejected[token.step])})
        kind = "accepted" if token.step in accepted else "own"
        found.append({"kind": kind, "text": token_text.visible(token.text)})
    return found


def chips_sentence(shown: Sequence[dict[str, str]]) -> str:
    """How much of the text was drafted."""
    accepted = sum(chip["kind"] == "accepted" for chip in shown)
    rejected = sum(chip["kind"] == "rejected" for chip in shown)
    tokens = len(shown) - rejected
    if not tokens:
        return "No text yet."
    were = "was" if rejected == 1 else "were"
    return (
        f"{accepted} of {counted(tokens, 'token')} were accepted draft tokens "
        f"({accepted / tokens:.0%}); {counted(rejected, 'draft token')} {were} rejected."
    )
