"""Scores every way of sampling, and compares the tree with independent texts."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from eab.errors import QuestionsError
from eab.labs.tuning.answering import SamplingResults
from eab.labs.tuning.evaluation_report import (
    GREEDY,
    INDEPENDENT,
    SEMANTIC,
    TREE,
    EntropyError,
    EvaluationReport,
    Gain,
    ScoreRow,
)
from eab.labs.tuning.questions import Question
from eab.labs.tuning.scores import Flags, Interval, Values, aurac, auroc, bootstrap

# A single text has only these scores; its predictive entropy is -ln p.
_OF_GREEDY: Final = {
    "predictive entropy": "-ln p of the answer",
    "length-normalised predictive entropy": "-ln p per token",
    "length of the answer": "length of the answer",
}


def report(questions: Sequence[Question], ways: Sequence[SamplingResults]) -> EvaluationReport:
    """Compare the ways by how well scores find wrong greedy answers; QuestionsError if all or none
    are wrong and no question has a known distribution.
    """
    by_name = {way.name: way for way in ways}
    facts = [at for at, question in enumerate(questions) if question.answers]
    chances = [at for at, question in enumerate(questions) if question.distribution]
    wrong = np.array([not by_name[GREEDY].readings[at].right for at in facts], dtype=np.bool_)
    one_sided = not wrong.any() or wrong.all()
    if one_sided and not chances:
        raise QuestionsError(
            f"the model answers {len(facts) - int(wrong.sum())} of {len(facts)} questions "
            "correctly; a comparison needs right and wrong answers, so add other questions"
        )
    rows = [] if one_sided else _score_rows(ways, facts, wrong)
    gains = [] if one_sided else _gains(by_name, facts, wrong)
    errors, error_gain = _entropy_errors(by_name, questions, chances)
    return EvaluationReport(
        len(facts),
        int(wrong.sum()),
        len(chances),
        {way.name: way.tokens for way in ways},
        by_name[INDEPENDENT].config.max_paths,
        tuple(rows),
        tuple(gains),
        errors,
        error_gain,
    )


def _score_rows(
    ways: Sequence[SamplingResults], facts: Sequence[int], wrong: Flags
) -> list[ScoreRow]:
    rows = []
    for way in ways:
        every = {name: name for name in way.readings[0].scores}
        for name, shown in (_OF_GREEDY if way.name == GREEDY else every).items():
            scores = _scores(way, name, facts)
            found = bootstrap(auroc, scores, wrong)
            if found.is_known:
                rows.append(ScoreRow(way.name, shown, found, bootstrap(aurac, scores, wrong)))
    return rows


def _gains(by_name: dict[str, SamplingResults], facts: Sequence[int], wrong: Flags) -> list[Gain]:
    gains = []
    for name in by_name[TREE].readings[0].scores:
        ours, theirs = (_scores(by_name[way], name, facts) for way in (TREE, INDEPENDENT))
        gains.append(Gain(name, bootstrap(_auroc_gain, ours, theirs, wrong)))
    return [gain for gain in gains if gain.auroc.is_known]


def _auroc_gain(ours: Values, theirs: Values, wrong: Flags) -> float:
    return auroc(ours, wrong) - auroc(theirs, wrong)


def _entropy_errors(
    by_name: dict[str, SamplingResults], questions: Sequence[Question], chances: Sequence[int]
) -> tuple[tuple[EntropyError, ...], Interval | None]:
    truth = np.array([questions[at].entropy for at in chances])
    off = {name: _scores(by_name[name], SEMANTIC, chances) - truth for name in (TREE, INDEPENDENT)}
    errors = [
        EntropyError(name, bootstrap(np.mean, values), bootstrap(np.mean, np.abs(values)))
        for name, values in off.items()
    ]
    gain = bootstrap(np.mean, np.abs(off[TREE]) - np.abs(off[INDEPENDENT]))
    known = tuple(error for error in errors if error.bias.is_known)
    return known, gain if gain.is_known else None


def _scores(way: SamplingResults, name: str, places: Sequence[int]) -> Values:
    return np.array([way.readings[at].scores[name] for at in places], dtype=np.float64)
