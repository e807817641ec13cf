"""When draft tokens save time: plain decoding compared with one drafter at several draft lengths,
measured and by formula.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import median
from typing import Final

from eab import token_text
from eab.config import MAX_DRAFT
from eab.engine.speculation.stats import (
    SpeculationStats,
    best_length,
    expected_tokens,
    fit_pass_seconds,
    speculation_stats,
    speed_up,
)
from eab.formatting import counted
from eab.labs.measurement import Chart, Lab, Measure, Report, TextTable, Values, measures_table
from eab.labs.variants import UNITS, repeats_of, variant_times
from eab.run import RunState
from eab.timing import Timing, are_too_few, comparison, differs, ms, repeats_words

LENGTHS: Final = tuple(range(MAX_DRAFT + 1))  # draft lengths on the axes
NOTHING_DRAFTED: Final = "No draft tokens: the drafter found nothing to propose."
ONE_PATH_ONLY: Final = "The formulas hold for one path, but the run has several. Choose One text."
# The cost of a draft token in passes of the model, if the model is a hundred times larger.
SMALL_DRAFT: Final = 0.05
_LENGTH_AXIS: Final = "draft length (draft tokens per pass)"
_NOTE: Final = (
    "All measured. Times are medians over alternating repeats, with quartiles in brackets. Two "
    "times differ if their medians are further apart than the wider of their two interquartile "
    "ranges. Draft tokens after the first rejected one of a pass are discarded without "
    "verification. The row with the formula, for one path, is (1 - α^(k+1)) / (1 - α) for k draft "
    "tokens at acceptance rate α."
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


def draft_length_results(report: Report) -> list[DraftLengthResult]:
    """All variants with at least one step after the step that the prompt's pass decides."""
    return report.computed(_results)


def _results(report: Report) -> list[DraftLengthResult]:
    results = []
    for name, run in report.runs.items():
        config = run.started.config
        if len(run.steps) > 1:
            length = None if config.drafter == "none" else config.draft_length
            times = (variant_times(report, name, column) for column in ("decode", "drafting"))
            results.append(DraftLengthResult(name, length, speculation_stats(run), *times))
    return results


def plain_and_drafted(
    results: Sequence[DraftLengthResult],
) -> tuple[DraftLengthResult | None, Sequence[DraftLengthResult]]:
    """Plain decoding, and the variants with draft tokens."""
    plain = next((result for result in results if result.length is None), None)
    return plain, [result for result in results if result.length is not None]


def is_one_path(report: Report) -> bool:
    """Whether no run forked; the formulas hold for one path only."""
    return all(len(run.paths) == 1 for run in report.runs.values())


def acceptance_rate(report: Report) -> float | None:
    """Accepted over verified draft tokens of all variants (measured); None if none verified."""
    stats = [result.stats for result in draft_length_results(report)]
    verified = sum(each.verified for each in stats)
    return sum(each.accepted for each in stats) / verified if verified else None


def drafts_answer(report: Report) -> str:
    """How often drafts are accepted, how many steps that gives, and whether it is faster here."""
    plain, drafted = plain_and_drafted(draft_length_results(report))
    alpha = acceptance_rate(report)
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


def drafts_table(report: Report) -> TextTable:
    """A row per outcome, with a cell per variant; only the formula is not measured."""
    alpha = acceptance_rate(report) if is_one_path(report) else None

    def formula(result: DraftLengthResult) -> float | None:
        return expected_tokens(alpha, result.length) if alpha and result.length else None

    count, ratio = "{:,.0f}".format, "{:.2f}".format
    measures = (
        Measure("ms of all steps", attrgetter("seconds"), ms, True),
        Measure("of these, drafting", attrgetter("drafting"), ms),
        Measure("forward passes", attrgetter("stats.forward_passes"), count),
        Measure("steps per pass", attrgetter("steps_per_pass"), ratio),
        Measure("steps per pass (formula)", formula, ratio),
        Measure("draft tokens", attrgetter("stats.draft_tokens"), count),
        Measure("of these, verified", attrgetter("stats.verified"), count),
        Measure("of these, accepted", attrgetter("stats.accepted"), count),
        Measure("accepted / verified", attrgetter("stats.acceptance_rate"), "{:.0%}".format),
    )
    results = {result.name: result for result in draft_length_results(report)}
    return measures_table(results, measures)


def steps_chart(report: Report) -> Chart:
    """Steps per forward pass over the draft length; for a single path also the formula."""
    alpha = acceptance_rate(report) or 0.0
    formula = {length: Timing((expected_tokens(alpha, length),)) for length in LENGTHS}
    lines = {f"formula, acceptance rate {alpha:.2f}": formula} if is_one_path(report) else {}
    measured = {
        result.length: Timing((result.steps_per_pass,))
        for result in draft_length_results(report)
        if result.length
    }
    return Chart(_LENGTH_AXIS, "steps per forward pass", lines, {"measured": measured})


@dataclass(frozen=True, slots=True)
class PassCosts:
    """Measured times, in units of a forward pass of one token."""

    draft_token: float  # time of drafting one token
    further_token: float  # time that each further token adds to a pass

    def of_pass(self, tokens: int) -> float:
        """Time of a pass with this many tokens."""
        return 1.0 + (tokens - 1) * self.further_token

    def speed_up(self, alpha: float, length: int) -> float:
        """Time of plain decoding divided by the time with so many draft tokens per pass."""
        return speed_up(alpha, length, self.draft_token, self.of_pass)


_LARGE_MODEL: Final = PassCosts(SMALL_DRAFT, further_token=0.0)


def repeated_costs(report: Report) -> list[PassCosts]:
    """The costs of each repeat."""
    names = [result.name for result in draft_length_results(report)]
    rounds = zip(*(repeats_of(report, name) for name in names), strict=False)
    return [costs for rows in rounds if (costs := _costs_of(rows)) is not None]


def _costs_of(rows: Sequence[Values]) -> PassCosts | None:
    passes = [
        (row["tokens"] / row["passes"], row["forward"] / row["passes"])
        for row in rows
        if row["passes"]
    ]
    fit, drafted = fit_pass_seconds(passes), sum(row["drafted"] for row in rows)
    if fit is None or not drafted or sum(fit) <= 0:
        return None
    single, drafting = sum(fit), sum(row["drafting"] for row in rows)
    return PassCosts(drafting / drafted / single, fit[1] / single)


def pass_costs(report: Report) -> PassCosts | None:
    """Median costs over the repeats; None without passes of two different sizes."""
    repeats = repeated_costs(report)
    if not repeats:
        return None
    return PassCosts(
        median(costs.draft_token for costs in repeats),
        median(costs.further_token for costs in repeats),
    )


def gains_answer(report: Report) -> str:
    """The cost of a draft token, the best length with it, and the gain with a much larger model."""
    if not is_one_path(report):
        return ONE_PATH_ONLY
    costs, alpha = pass_costs(report), acceptance_rate(report)
    if costs is None or alpha is None:
        return "No speed-up can be computed yet. Press Run to measure."
    here = _best_words(alpha, costs, repeated_costs(report))
    large = _best_words(alpha, _LARGE_MODEL, [_LARGE_MODEL])
    measured = repeats_words(result.seconds for result in draft_length_results(report))
    return (
        f"A draft token costs {costs.draft_token:.2f} of a forward pass of the model, and one more "
        f"token in a pass {costs.further_token:.2f} ({measured}). With these costs, {here}; at "
        f"{SMALL_DRAFT} per draft token, and if more tokens in a pass cost nothing, as for a large "
        f"model on a GPU, {large} (computed)."
    )


def _best_words(alpha: float, costs: PassCosts, repeats: Sequence[PassCosts]) -> str:
    best = best_length(alpha, costs.draft_token, costs.of_pass)
    gains = Timing(tuple(each.speed_up(alpha, best) for each in repeats))
    if not best or gains.low <= 1:
        return "no draft length is measurably faster than plain decoding"
    speed = costs.speed_up(alpha, best)
    return f"{counted(best, 'draft token')} would be {speed:.2f} times as fast as plain decoding"


def gains_chart(report: Report) -> Chart:
    """Times as fast as plain decoding over the draft length: measured, and computed from costs."""
    plain, drafted = plain_and_drafted(draft_length_results(report))
    costs, alpha = pass_costs(report), acceptance_rate(report)
    lines, points = {}, {}
    if costs is not None and alpha is not None and is_one_path(report):
        lines = {
            name: {length: Timing((each.speed_up(alpha, length),)) for length in LENGTHS}
            for name, each in (("computed here", costs), ("computed, large model", _LARGE_MODEL))
        }
    if plain is not None:
        points["measured here"] = {
            one.length: Timing(
                tuple(plain.seconds.median / seconds for seconds in one.seconds.seconds)
            )
            for one in drafted
            if one.length and all(one.seconds.seconds)
        }
    return Chart(_LENGTH_AXIS, "times as fast as plain decoding", lines, points)


DRAFTS: Final = Lab("drafts", UNITS, drafts_answer, drafts_table, _NOTE, steps_chart)
GAINS: Final = Lab("gains", UNITS, gains_answer, chart=gains_chart)


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
