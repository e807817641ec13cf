"""The results of an evaluation: a row per score, the tree against independent texts, a verdict."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from eab.errors import QuestionsError
from eab.labs.tuning.answering import GREEDY, INDEPENDENT, TREE, Way
from eab.labs.tuning.questions import Question
from eab.labs.tuning.scores import Flags, Interval, Values, aurac, auroc, bootstrap

SEMANTIC: Final = "semantic entropy"
# A single text has no other scores; its predictive entropy is -ln p.
_OF_GREEDY: Final = {
    "predictive entropy": "-ln p of the answer",
    "length-normalised predictive entropy": "-ln p per token",
    "length of the answer": "length of the answer",
}


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """How well one score tells wrong answers from right ones."""

    way: str
    score: str
    auroc: Interval
    aurac: Interval


@dataclass(frozen=True, slots=True)
class Gain:
    """The tree against independent texts, paired by question."""

    score: str
    auroc: Interval  # AUROC of the tree minus that of independent texts


@dataclass(frozen=True, slots=True)
class EntropyError:
    """How far semantic entropy is from the true entropy, over questions that chance decides."""

    way: str
    bias: Interval  # mean of estimate minus truth, in nats
    absolute: Interval  # mean absolute error, in nats


@dataclass(frozen=True, slots=True)
class Report:
    """The results of an evaluation."""

    facts: int
    wrong: int  # how many of them the greedy text answers wrongly
    chances: int
    tokens: dict[str, int]  # generated tokens through the model, by way
    texts: int
    rows: tuple[ScoreRow, ...]
    gains: tuple[Gain, ...]
    errors: tuple[EntropyError, ...]
    # Mean absolute error of the tree minus that of independent texts, paired; below 0 the tree is
    # better. None without such questions.
    error_gain: Interval | None


def report(questions: Sequence[Question], ways: Sequence[Way]) -> Report:
    """Compare the ways by whether the greedy answer is right; QuestionsError if all or none are."""
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
    return Report(
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


def _score_rows(ways: Sequence[Way], facts: Sequence[int], wrong: Flags) -> list[ScoreRow]:
    rows = []
    for way in ways:
        every = {name: name for name in way.readings[0].scores}
        for name, shown in (_OF_GREEDY if way.name == GREEDY else every).items():
            scores = _scores(way, name, facts)
            rows.append(
                ScoreRow(
                    way.name,
                    shown,
                    _over_questions(auroc, scores, wrong),
                    _over_questions(aurac, scores, wrong),
                )
            )
    return rows


def _gains(by_name: dict[str, Way], facts: Sequence[int], wrong: Flags) -> list[Gain]:
    gains = []
    for name in by_name[TREE].readings[0].scores:
        ours, theirs = (_scores(by_name[way], name, facts) for way in (TREE, INDEPENDENT))
        gains.append(Gain(name, _auroc_gain(ours, theirs, wrong)))
    return gains


def _over_questions(
    metric: Callable[[Values, Flags], float], scores: Values, wrong: Flags
) -> Interval:
    return bootstrap(lambda at: metric(scores[at], wrong[at]), len(wrong))


def _auroc_gain(ours: Values, theirs: Values, wrong: Flags) -> Interval:
    return bootstrap(
        lambda at: auroc(ours[at], wrong[at]) - auroc(theirs[at], wrong[at]), len(wrong)
    )


def _entropy_errors(
    by_name: dict[str, Way], questions: Sequence[Question], chances: Sequence[int]
) -> tuple[tuple[EntropyError, ...], Interval | None]:
    if not chances:
        return (), None
    truth = np.array([questions[at].entropy for at in chances])
    off = {name: _scores(by_name[name], SEMANTIC, chances) - truth for name in (TREE, INDEPENDENT)}
    errors = tuple(
        EntropyError(name, _mean(values), _mean(np.abs(values))) for name, values in off.items()
    )
    return errors, _mean(np.abs(off[TREE]) - np.abs(off[INDEPENDENT]))


def _mean(values: Values) -> Interval:
    return bootstrap(lambda at: float(values[at].mean()), len(values))


def _scores(way: Way, name: str, places: Sequence[int]) -> Values:
    return np.array([way.readings[at].scores[name] for at in places])


def verdict(found: Report) -> str:
    """Whether the tree helps, in plain sentences; a difference within its interval is none."""
    spent, theirs = found.tokens[TREE], found.tokens[INDEPENDENT]
    words = [
        f"The trees took {spent:,} tokens, {found.texts} independent "
        f"{'text' if found.texts == 1 else 'texts'} per question {theirs:,}."
    ]
    gain = next((gain.auroc for gain in found.gains if gain.score == SEMANTIC), None)
    if gain is not None:
        words.append(
            f"Wrong answers: the semantic entropy of the tree {_compared(gain, 'better', 'worse')} "
            f"(difference of AUROC {_signed(gain)})."
        )
    if found.error_gain is not None:
        error = found.error_gain
        words.append(
            f"Known distributions: its error {_compared(error, 'larger', 'smaller')} "
            f"(difference {_signed(error)} nats)."
        )
    return " ".join(words)


def _compared(difference: Interval, above: str, below: str) -> str:
    if not difference.excludes_zero:
        return "shows no measurable difference from independent texts"
    return f"is {above if difference.low > 0 else below} than that of independent texts"


def _signed(interval: Interval) -> str:
    return f"{interval.value:+.3f}, from {interval.low:+.3f} to {interval.high:+.3f}"
