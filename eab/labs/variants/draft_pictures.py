"""Plain decoding compared with one drafter at several draft lengths: measured and by formula."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from eab import token_text
from eab.config import MAX_DRAFT
from eab.figures.charts import BLUE, ORANGE, from_zero, laid_out
from eab.figures.drawing import go
from eab.figures.timings import ms, with_spread
from eab.formatting import counted
from eab.labs.variants.costs import VariantRow
from eab.labs.variants.results import VariantRuns
from eab.run import RunState
from eab.speculation.stats import SpeculationStats, expected_tokens, speculation_stats
from eab.timing import Timing, are_too_few, comparison

LENGTHS: Final = tuple(range(MAX_DRAFT + 1))  # draft lengths on the axes
NOTHING_DRAFTED: Final = "No draft tokens: the drafter found nothing to propose."
LENGTH_AXIS: Final = "draft length (draft tokens per pass)"
_OF_A_TREE: Final = (
    "In a tree the slowest path decides when a step ends, so the formula for one path is not drawn."
)
_NO_VALUE: Final = "–"
# Name of the row, column of `outcome_table`, and number format.
_OUTCOMES: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("forward passes", "forward passes", "{:,.0f}".format),
    ("steps per pass", "steps per pass", "{:.2f}".format),
    ("steps per pass (formula)", "steps per pass (formula)", "{:.2f}".format),
    ("draft tokens", "draft tokens", "{:,.0f}".format),
    ("of these, verified", "verified", "{:,.0f}".format),
    ("of these, accepted", "accepted", "{:,.0f}".format),
    ("accepted / verified", "accepted of verified", "{:.0%}".format),
)


@dataclass(frozen=True, slots=True)
class DraftLengthResult:
    """The outcome of one variant's draft tokens."""

    name: str
    length: int | None  # draft length; None for plain decoding, 0 for adaptive
    stats: SpeculationStats
    seconds: Timing  # time of the decode steps, in each repeat
    drafting: Timing  # time of the drafter, in each repeat

    @property
    def steps_per_pass(self) -> float:
        """Steps per forward pass; 0 before the first pass."""
        return self.stats.steps_per_pass or 0.0


def draft_length_results(compared: VariantRuns) -> list[DraftLengthResult]:
    """All variants with at least one step after the step that the prompt's pass decides."""
    results = []
    for name, run in compared.pairs:
        config = run.started.config
        if len(run.steps) > 1:
            length = None if config.drafter == "none" else config.draft_length
            seconds = compared.timing(name, lambda result: result.decode_seconds)
            drafting = compared.timing(name, lambda result: result.draft_seconds)
            stats = speculation_stats(run)
            results.append(DraftLengthResult(name, length, stats, seconds, drafting))
    return results


def plain_and_drafted(
    results: Sequence[DraftLengthResult],
) -> tuple[DraftLengthResult | None, Sequence[DraftLengthResult]]:
    """Plain decoding, and the variants with draft tokens."""
    plain = next((result for result in results if result.length is None), None)
    return plain, [result for result in results if result.length is not None]


def is_one_path(compared: VariantRuns) -> bool:
    """Whether no run forked; the formulas hold for one path only."""
    return all(len(run.paths) == 1 for run in compared.runs)


def acceptance_rate(compared: VariantRuns) -> float | None:
    """Accepted over verified draft tokens of all variants (measured); None if none verified."""
    results = draft_length_results(compared)
    accepted = sum(result.stats.accepted for result in results)
    verified = accepted + sum(result.stats.rejected for result in results)
    return accepted / verified if verified else None


def outcome_table(compared: VariantRuns) -> pd.DataFrame:
    """One row per variant; all measured except the formula. Seconds are medians and quartiles."""
    alpha = acceptance_rate(compared) if is_one_path(compared) else None
    results = draft_length_results(compared)
    plain, _ = plain_and_drafted(results)
    return pd.DataFrame([_outcome_row(result, alpha, plain) for result in results])


def _outcome_row(
    result: DraftLengthResult, alpha: float | None, plain: DraftLengthResult | None
) -> dict[str, Any]:
    stats, seconds = result.stats, result.seconds
    return {
        "draft length": result.name,
        "times as fast": plain.seconds.median / seconds.median
        if plain is not None and seconds.median
        else None,
        "forward passes": stats.forward_passes,
        "steps per pass": stats.steps_per_pass,
        "steps per pass (formula)": expected_tokens(alpha, result.length)
        if result.length and alpha
        else None,
        "draft tokens": stats.draft_tokens,
        "verified": stats.accepted + stats.rejected,
        "accepted": stats.accepted,
        "accepted of verified": stats.acceptance_rate,
        "seconds": seconds.median,
        "seconds, lower quartile": seconds.low,
        "seconds, upper quartile": seconds.high,
        "repeats": len(seconds.seconds),
        "of which drafting": result.drafting.median,
    }


def outcome_rows(compared: VariantRuns) -> list[VariantRow]:
    """The outcomes for reading: one row per measure, with a cell per variant."""
    table, results = outcome_table(compared), draft_length_results(compared)
    plain, _ = plain_and_drafted(results)
    counts = [
        VariantRow(
            measure,
            tuple(_NO_VALUE if pd.isna(value) else written(value) for value in table[column]),
        )
        for measure, column, written in _OUTCOMES
        if column in table and not table[column].isna().all()
    ]
    speed = [
        VariantRow("speed against plain", tuple(_against(result, plain) for result in results))
    ]
    if plain is None or all(are_too_few(result.seconds, plain.seconds) for result in results):
        speed = []
    return [
        *speed,
        *counts,
        VariantRow("ms of all steps", tuple(with_spread(result.seconds, ms) for result in results)),
        VariantRow(
            "of these, drafting", tuple(with_spread(result.drafting, ms) for result in results)
        ),
    ]


def _against(result: DraftLengthResult, plain: DraftLengthResult | None) -> str:
    if plain is None or result is plain:
        return _NO_VALUE
    return comparison(result.seconds, plain.seconds)


def tokens_figure(compared: VariantRuns) -> go.Figure:
    """Steps per forward pass over the draft length; for a single path also the formula."""
    alpha = acceptance_rate(compared) or 0.0
    fixed = [result for result in draft_length_results(compared) if result.length]
    figure = go.Figure()
    if is_one_path(compared):
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
    return laid_out(figure, x=LENGTH_AXIS, y=from_zero("steps per forward pass"))


def tokens_sentence(compared: VariantRuns) -> str:
    """The acceptance rate, and the steps per pass that it gives."""
    alpha = acceptance_rate(compared)
    if alpha is None:
        return NOTHING_DRAFTED
    drafted = [result for result in draft_length_results(compared) if result.length is not None]
    best = max(drafted, key=lambda result: result.steps_per_pass)
    gained = f"up to {best.steps_per_pass:.2f} steps instead of 1 ({best.name}, measured)"
    if best.steps_per_pass < 1.005:
        gained = "no more than 1 step with any draft length (measured)"
    of_a_tree = "" if is_one_path(compared) else f" {_OF_A_TREE}"
    return (
        f"A draft token is accepted with probability {alpha:.2f} if all earlier ones were, and a "
        f"forward pass gives {gained}.{of_a_tree}"
    )


def chips(run: RunState, leaf: int) -> list[dict[str, str]]:
    """The tokens of a leaf's text, each with its `text` and `kind`.

    The kind is `own` if the model wrote the token without a draft, `accepted` for a draft token,
    and `rejected` for the first rejected draft token of a pass, which comes before its replacement.
    """
    lineage = {path for path in run.lineage(leaf) if run.paths[path].tokens}
    accepted, rejected = set(), {}
    for drafted in run.speculations:
        if drafted.path in lineage:
            accepted |= set(range(drafted.step, drafted.step + drafted.accepted))
            if drafted.verified > drafted.accepted:
                rejected[drafted.step + drafted.accepted] = drafted.draft_texts[drafted.accepted]
    tokens = []
    for token in run.tokens(leaf):
        if token.step in rejected:
            tokens.append({"kind": "rejected", "text": token_text.visible(rejected[token.step])})
        kind = "accepted" if token.step in accepted else "own"
        tokens.append({"kind": kind, "text": token_text.visible(token.kept)})
    return tokens


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
