"""How well scores of uncertainty find wrong answers, as a table, and whether the tree helps.

A score of uncertainty is judged by how well it separates wrong from right answers, with bootstrap
intervals.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from eab.errors import QuestionsError

Values: TypeAlias = NDArray[np.float64]  # (n,), one per question
Flags: TypeAlias = NDArray[np.bool_]  # (n,)
RESAMPLES: Final = 2000


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with the 2.5% and 97.5% quantiles of its bootstrap distribution."""

    value: float
    low: float
    high: float
    questions: int = 0  # how many it is over: those where every score was measured

    @property
    def is_known(self) -> bool:
        """Whether there is a value: it was measured for right and for wrong answers."""
        return not math.isnan(self.value)

    @property
    def excludes_zero(self) -> bool:
        """Whether the sign of the value is certain at this confidence."""
        return self.low > 0 or self.high < 0


def auroc(scores: Values, wrong: Flags) -> float:
    """The probability that a wrong answer has a higher score than a right one; ties count one half.

    The area under the ROC curve: 0.5 is no better than guessing. NaN if all are right or all wrong.
    """
    positives = int(wrong.sum())
    negatives = len(wrong) - positives
    if not positives or not negatives:
        return math.nan
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = counts.cumsum() - (counts - 1) / 2  # ties get their mean rank
    above = float(ranks[places][wrong].sum()) - positives * (positives + 1) / 2
    return above / (positives * negatives)


def aurac(scores: Values, wrong: Flags) -> float:
    """The mean accuracy of the kept answers when the most uncertain answers are rejected.

    The area under the rejection-accuracy curve (Farquhar et al., 2024), averaged over every number
    of kept answers, from one to all. Ties count as their expectation over random orders.
    """
    _, places = np.unique(scores, return_inverse=True)
    tied = np.bincount(places, weights=~wrong) / np.bincount(places)
    right = tied[np.sort(places)]
    return float((right.cumsum() / np.arange(1, len(right) + 1)).mean())


def bootstrap(statistic: Callable[..., float], *columns: NDArray[Any], seed: int = 0) -> Interval:
    """A statistic of columns, (n,) each, with its percentile interval (95%) over resampled
    questions. Questions with a NaN, which was not measured, are left out; NaN statistics, too.
    """
    known = ~np.isnan(columns).any(axis=0)
    columns = tuple(column[known] for column in columns)
    count, generator = int(known.sum()), np.random.default_rng(seed)
    value = float(statistic(*columns)) if count else math.nan
    if math.isnan(value):
        return Interval(math.nan, math.nan, math.nan, count)
    resamples = (generator.integers(count, size=count) for _ in range(RESAMPLES))
    drawn = np.array([statistic(*(column[at] for column in columns)) for at in resamples])
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return Interval(value, float(low), float(high), count)


GREEDY: Final = "greedy"
TREE: Final = "tree"
INDEPENDENT: Final = "independent"
SEMANTIC: Final = "semantic entropy"
SCORES: Final = (
    SEMANTIC,
    "semantic entropy, Rao-Blackwellised",
    "predictive entropy",
    "length-normalised predictive entropy",
    "1 - P(most likely answer)",
    "unexplored probability",
    "length of the answer",
)
# A single text has only these scores; its predictive entropy is -ln p.
_OF_GREEDY: Final = {
    "predictive entropy": "-ln p of the answer",
    "length-normalised predictive entropy": "-ln p per token",
    "length of the answer": "length of the answer",
}
ROW_HEADINGS: Final = ("Score", "Texts from", "AUROC", "AURAC", "Questions")


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """How well one score separates wrong answers from right ones."""

    way: str
    score: str
    auroc: Interval
    aurac: Interval


@dataclass(frozen=True, slots=True)
class EntropyError:
    """The error of the semantic entropy, over questions whose answers chance decides."""

    way: str
    bias: Interval  # mean of estimate minus truth, in nats
    absolute: Interval  # mean absolute error, in nats


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """The results of an evaluation."""

    facts: int
    wrong: int  # how many of these questions the greedy text answers wrongly
    chances: int
    tokens: dict[str, int]  # generated tokens through the model, by way
    texts: int
    rows: tuple[ScoreRow, ...]
    gains: dict[
        str, Interval
    ]  # AUROC of the tree minus that of independent texts, paired, by score
    errors: tuple[EntropyError, ...]
    # Mean absolute error of the tree minus that of independent texts, paired; negative if the tree
    # is better. None without such questions.
    error_gain: Interval | None


def report(rows: Iterable[Mapping[str, Any]]) -> EvaluationReport:
    """Compare the ways by how well scores find wrong greedy answers; QuestionsError if all or none
    are wrong and no question has a known distribution.
    """
    answered = pd.DataFrame([*rows]).groupby("sampling", sort=False)
    ways = {str(way): table for way, table in answered}
    facts, chances = (ways[GREEDY][name].notna().to_numpy() for name in ("right", "true_entropy"))
    wrong: Flags = ~ways[GREEDY]["right"][facts].astype(bool).to_numpy()
    scores = {
        way: {name: table[name].to_numpy(float) for name in SCORES} for way, table in ways.items()
    }
    one_sided = not wrong.any() or bool(wrong.all())
    if one_sided and not chances.any():
        raise QuestionsError(
            f"the model answers {int((~wrong).sum())} of {len(wrong)} questions "
            "correctly; a comparison needs right and wrong answers, so add other questions"
        )
    of_facts = {way: {name: scores[way][name][facts] for name in SCORES} for way in ways}
    truth = ways[TREE]["true_entropy"].to_numpy(float)[chances]
    off = {way: scores[way][SEMANTIC][chances] - truth for way in (TREE, INDEPENDENT)}
    gain = bootstrap(np.mean, np.abs(off[TREE]) - np.abs(off[INDEPENDENT]))
    return EvaluationReport(
        len(wrong),
        int(wrong.sum()),
        int(chances.sum()),
        {way: int(table["tokens"].sum()) for way, table in ways.items()},
        int(ways[INDEPENDENT]["texts"].iloc[0]),
        () if one_sided else _score_rows(of_facts, wrong),
        {} if one_sided else _gains(of_facts, wrong),
        tuple(_entropy_errors(off)),
        gain if gain.is_known else None,
    )


def _score_rows(scores: Mapping[str, Mapping[str, Values]], wrong: Flags) -> tuple[ScoreRow, ...]:
    rows = []
    for way, of_way in scores.items():
        shown = _OF_GREEDY if way == GREEDY else {name: name for name in SCORES}
        for name, title in shown.items():
            found = bootstrap(auroc, of_way[name], wrong)
            if found.is_known:
                rows.append(ScoreRow(way, title, found, bootstrap(aurac, of_way[name], wrong)))
    return tuple(rows)


def _gains(scores: Mapping[str, Mapping[str, Values]], wrong: Flags) -> dict[str, Interval]:
    def gain(ours: Values, theirs: Values, wrong: Flags) -> float:
        return auroc(ours, wrong) - auroc(theirs, wrong)

    ours, theirs = scores[TREE], scores[INDEPENDENT]
    gains = {name: bootstrap(gain, ours[name], theirs[name], wrong) for name in SCORES}
    return {name: found for name, found in gains.items() if found.is_known}


def _entropy_errors(off: Mapping[str, Values]) -> Iterable[EntropyError]:
    for way, values in off.items():
        bias = bootstrap(np.mean, values)
        if bias.is_known:
            yield EntropyError(way, bias, bootstrap(np.mean, np.abs(values)))


def report_rows(report: EvaluationReport) -> list[tuple[str, ...]]:
    """One row per score and way of sampling, under ROW_HEADINGS."""
    return [
        (row.score, row.way, written(row.auroc), written(row.aurac), f"{row.auroc.questions:,}")
        for row in report.rows
    ]


def written(interval: Interval) -> str:
    """A value and its interval as text: "0.812 (0.751 to 0.866)"."""
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def verdict(report: EvaluationReport) -> str:
    """Whether the tree helps, in plain sentences; no difference if an interval contains 0."""
    words = []
    if (gain := report.gains.get(SEMANTIC)) is not None:
        words.append(
            f"Wrong answers: the semantic entropy of the tree {_compared(gain, 'better', 'worse')} "
            f"(difference of AUROC {_signed(gain)}, {gain.questions:,} questions)."
        )
    if report.error_gain is not None:
        error = report.error_gain
        words.append(
            f"Known distributions: its error {_compared(error, 'larger', 'smaller')} "
            f"(difference {_signed(error)} nats, {error.questions:,} questions)."
        )
    return " ".join(words)


def _compared(difference: Interval, above: str, below: str) -> str:
    if not difference.excludes_zero:
        return "shows no measurable difference from independent texts"
    return f"is {above if difference.low > 0 else below} than that of independent texts"


def _signed(interval: Interval) -> str:
    return f"{interval.value:+.3f}, from {interval.low:+.3f} to {interval.high:+.3f}"
