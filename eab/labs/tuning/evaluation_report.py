"""How well scores of uncertainty find wrong answers, and whether the tree helps: flat rows.

A score of uncertainty is judged by how well it separates wrong from right answers, with bootstrap
intervals.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from eab.errors import QuestionsError
from eab.labs.measurement import Lab, LabBegan, LabEvent, Report, Row, TextTable
from eab.labs.measurement import Values as Fields
from eab.run.events import ModelCard, RunEnded

Values: TypeAlias = NDArray[np.float64]  # (n,), one per question
Flags: TypeAlias = NDArray[np.bool_]  # (n,)
RESAMPLES: Final = 2000


class Interval(NamedTuple):
    """A value with the 2.5% and 97.5% quantiles of its bootstrap distribution."""

    value: float
    low: float
    high: float
    questions: int = 0  # how many it is over: those where every score was measured

    @property
    def is_known(self) -> bool:
        """Whether there is a value: it was measured for right and for wrong answers."""
        return not math.isnan(self.value)


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
_PAIRED: Final = "tree - independent"  # differences question by question
AUROC, AURAC, BIAS, ERROR = "AUROC", "AURAC", "bias (nats)", "mean absolute error (nats)"
_OF_TRUTH: Final = "error of the semantic entropy"  # where chance decides the answer


def evaluated(
    answered: Iterable[Mapping[str, Any]], model: ModelCard, machine: str, settings: Fields
) -> Iterator[LabEvent]:
    """The report of the rows of `answer_rows`: a row `scores` per score, way of sampling and
    measure, with its interval. QuestionsError if all greedy answers or none are wrong and no
    question has a known distribution.
    """
    groups = pd.DataFrame([*answered]).groupby("sampling", sort=False)
    ways = {str(way): table for way, table in groups}
    facts, chances = (ways[GREEDY][name].notna().to_numpy() for name in ("right", "true_entropy"))
    wrong: Flags = ~ways[GREEDY]["right"][facts].astype(bool).to_numpy()
    one_sided = not wrong.any() or bool(wrong.all())
    if one_sided and not chances.any():
        raise QuestionsError(
            f"the model answers {int((~wrong).sum())} of {len(wrong)} questions "
            "correctly; a comparison needs right and wrong answers, so add other questions"
        )
    about = {
        "questions": len(wrong),
        "wrong": int(wrong.sum()),  # greedy answers
        "chances": int(chances.sum()),
        "texts": int(ways[INDEPENDENT]["texts"].iloc[0]),
        "tokens": {way: int(table["tokens"].sum()) for way, table in ways.items()},
        "settings": settings,
    }
    yield LabBegan(model.full_name, model.dtype, machine, EVALUATION.name, about)
    if not one_sided:
        yield from _score_rows({way: table[facts] for way, table in ways.items()}, wrong)
    truth = ways[TREE]["true_entropy"].to_numpy(float)[chances]
    yield from _error_rows(
        *(ways[way][SEMANTIC].to_numpy(float)[chances] - truth for way in (TREE, INDEPENDENT))
    )
    yield RunEnded(0, "finished")


def _score_rows(facts: Mapping[str, pd.DataFrame], wrong: Flags) -> Iterator[Row]:
    scores = {
        way: {name: table[name].to_numpy(float) for name in SCORES} for way, table in facts.items()
    }
    for way, of_way in scores.items():
        shown = _OF_GREEDY if way == GREEDY else {name: name for name in SCORES}
        for name, title in shown.items():
            for measure, statistic in ((AUROC, auroc), (AURAC, aurac)):
                yield from _row(measure, title, way, bootstrap(statistic, of_way[name], wrong))

    def gain(ours: Values, theirs: Values, wrong: Flags) -> float:
        return auroc(ours, wrong) - auroc(theirs, wrong)

    for name in SCORES:
        both = scores[TREE][name], scores[INDEPENDENT][name]
        yield from _row(AUROC, name, _PAIRED, bootstrap(gain, *both, wrong))


def _error_rows(tree: Values, independent: Values) -> Iterator[Row]:
    """From estimate minus truth, in nats, of each question that chance decides."""
    for way, off in ((TREE, tree), (INDEPENDENT, independent)):
        yield from _row(BIAS, _OF_TRUTH, way, bootstrap(np.mean, off))
        yield from _row(ERROR, _OF_TRUTH, way, bootstrap(np.mean, np.abs(off)))
    paired = bootstrap(np.mean, np.abs(tree) - np.abs(independent))
    yield from _row(ERROR, _OF_TRUTH, _PAIRED, paired)


def _row(measure: str, score: str, sampling: str, found: Interval) -> Iterator[Row]:
    if found.is_known:
        about = {"measure": measure, "score": score, "sampling": sampling}
        yield Row("scores", about | found._asdict())


def scores_table(report: Report) -> TextTable:
    """A row per score and way of sampling: how well wrong answers are found."""
    return _table(report, (AUROC, AURAC))


def errors_table(report: Report) -> TextTable:
    """A row per way of sampling: how far the semantic entropy is from the known one."""
    return _table(report, (BIAS, ERROR))


def _table(report: Report, measures: Sequence[str]) -> TextTable:
    cells: dict[tuple[str, str], dict[str, Fields]] = {}
    for row in report.rows("scores"):
        if row["measure"] in measures and row["sampling"] != _PAIRED:
            cells.setdefault((row["score"], row["sampling"]), {})[row["measure"]] = row
    rows = [
        (*place, *(_written(of[name]) for name in measures), f"{of[measures[0]]['questions']:,}")
        for place, of in cells.items()
    ]
    return [("Score", "Texts from", *measures, "Questions"), *rows] if rows else []


def _written(row: Fields) -> str:
    return f"{row['value']:.3f} ({row['low']:.3f} to {row['high']:.3f})"


def verdict(report: Report) -> str:
    """Whether the tree helps: the paired differences; none if an interval contains 0."""
    words = []
    for title, (measure, score), better, worse in (
        ("Wrong answers: the semantic entropy of the tree", (AUROC, SEMANTIC), "better", "worse"),
        ("Known distributions: its error", (ERROR, _OF_TRUTH), "larger", "smaller"),
    ):
        for row in report.rows("scores", measure=measure, score=score, sampling=_PAIRED):
            compared = f"is {better if row['low'] > 0 else worse} than that of independent texts"
            if row["low"] <= 0 <= row["high"]:
                compared = "shows no measurable difference from independent texts"
            words.append(
                f"{title} {compared} (difference of {measure} {row['value']:+.3f}, from "
                f"{row['low']:+.3f} to {row['high']:+.3f}, {row['questions']:,} questions)."
            )
    return " ".join(words)


EVALUATION: Final = Lab(
    "evaluation",
    {},
    verdict,
    scores_table,
    "One tree per question, independent texts with about as many tokens, and one greedy answer. A "
    "score of uncertainty is good if it is high where the answer is wrong. The AUROC is the chance "
    "that a wrong answer has a higher score than a right one: 0.5 is guessing. The AURAC is the "
    "mean accuracy over all shares of answered questions, starting with the most certain answers. "
    "Intervals (95%) are from resampled questions. A question for which a score was not measured, "
    "as for a tree of one text, is left out of its row.",
)
