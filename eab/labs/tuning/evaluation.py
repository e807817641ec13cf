"""Answers every question greedily, by a tree, and by independent texts for about equal tokens; and
compares how well scores of uncertainty find wrong answers.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from eab.analysis.answer_parts import Part
from eab.analysis.answers import group_answers
from eab.analysis.same_answer import SameAnswer
from eab.analysis.uncertainty import uncertainty
from eab.caches.prefix_cache import PrefixCache
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.errors import QuestionsError
from eab.labs.tuning.evaluation_report import (
    GREEDY,
    INDEPENDENT,
    SEMANTIC,
    TREE,
    EntropyError,
    EvaluationReport,
    Flags,
    Interval,
    ScoreRow,
    Values,
    aurac,
    auroc,
    bootstrap,
)
from eab.labs.tuning.prompt_sets import Question
from eab.models.base import LanguageModel
from eab.run import RunState, fold

# A single text has only these scores; its predictive entropy is -ln p.
_OF_GREEDY: Final = {
    "predictive entropy": "-ln p of the answer",
    "length-normalised predictive entropy": "-ln p per token",
    "length of the answer": "length of the answer",
}


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """The result of one way of sampling for one question."""

    answer: str
    right: bool | None  # whether this is a known answer; None if chance decides the answer
    tokens: int  # generated tokens that went through the model
    tokens_per_text: float  # tokens that an independent text is expected to take, by the weights
    # Scores by name, None if not measured; higher is more uncertain
    scores: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class SamplingResults:
    """One way of sampling, with a reading for each question, in order."""

    name: str
    config: BranchingConfig
    readings: list[QuestionResult]

    @property
    def tokens(self) -> int:
        """Generated tokens that went through the model, summed over all questions."""
        return sum(reading.tokens for reading in self.readings)


@dataclass(frozen=True, slots=True)
class Answering:
    """How the questions are answered and compared."""

    model: LanguageModel
    config: BranchingConfig  # the settings of the tree; its policy must branch
    part: Part  # which part of a text is its answer
    same: SameAnswer  # the rule that compares answers, with each other and with known answers
    prefixes: PrefixCache | None = None  # lets all ways of sampling share a computed prompt

    def ways(self, questions: Sequence[Question]) -> Iterator[tuple[SamplingResults, int]]:
        """Answer all questions in each way. After each, yield the way and how many it has answered.

        The independent texts together are expected to take about as many tokens as all trees.
        """
        greedy = SamplingResults(GREEDY, replace(self.config, policy="greedy"), [])
        tree = SamplingResults(TREE, self.config, [])
        for way in (greedy, tree):
            yield from self._answered(way, questions)
        per_text = math.fsum(reading.tokens_per_text for reading in tree.readings)
        texts = max(1, round(tree.tokens / per_text)) if per_text else 1
        config = replace(self.config, policy="independent", max_paths=texts)
        yield from self._answered(SamplingResults(INDEPENDENT, config, []), questions)

    def _answered(
        self, way: SamplingResults, questions: Sequence[Question]
    ) -> Iterator[tuple[SamplingResults, int]]:
        for number, question in enumerate(questions):
            # A new seed for each, or the same random numbers would decide all questions.
            config = replace(way.config, seed=(way.config.seed + number) % 2**31)
            asked = Request(question.prompt, config)
            run = fold(event_stream(self.model, asked, prefixes=self.prefixes))
            run.raise_if_failed()
            way.readings.append(self._reading(question, run))
            yield way, number + 1

    def _reading(self, question: Question, run: RunState) -> QuestionResult:
        answers = group_answers(run, self.part, self.same)
        top = answers.ranked[0]
        right = any(self.same(question.prompt, top.text, known) for known in question.answers)
        measures = uncertainty(run, answers)
        scores = {
            "semantic entropy": measures.semantic,
            "semantic entropy, Rao-Blackwellised": measures.rao_blackwellised,
            "predictive entropy": measures.predictive,
            "length-normalised predictive entropy": measures.length_normalised,
            "1 - P(most likely answer)": 1.0 - top.weight,
            "unexplored probability": 1.0 - measures.explored,
            "length of the answer": float(len(top.text)),
        }
        tokens = run.tokens_needed - len(run.started.prompt_tokens)
        # The last token of a text never goes through the model.
        per_text = math.fsum(sample.weight * (len(sample.token_ids) - 1) for sample in run.samples)
        return QuestionResult(
            top.text, right if question.answers else None, tokens, per_text, scores
        )


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
    gains = {} if one_sided else _gains(by_name, facts, wrong)
    errors, error_gain = _entropy_errors(by_name, questions, chances)
    return EvaluationReport(
        len(facts),
        int(wrong.sum()),
        len(chances),
        {way.name: way.tokens for way in ways},
        by_name[INDEPENDENT].config.max_paths,
        tuple(rows),
        gains,
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


def _gains(
    by_name: dict[str, SamplingResults], facts: Sequence[int], wrong: Flags
) -> dict[str, Interval]:
    gains = {}
    for name in by_name[TREE].readings[0].scores:
        ours, theirs = (_scores(by_name[way], name, facts) for way in (TREE, INDEPENDENT))
        gains[name] = bootstrap(_auroc_gain, ours, theirs, wrong)
    return {name: gain for name, gain in gains.items() if gain.is_known}


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
