"""Answers every question greedily, by a tree, and by independent texts for about equal tokens."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eab.analysis.answer_parts import Part
from eab.analysis.answers import group_answers
from eab.analysis.same_answer import SameAnswer
from eab.analysis.uncertainty import uncertainty
from eab.caches.prefix_cache import PrefixCache
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.labs.tuning.evaluation_report import GREEDY, INDEPENDENT, TREE
from eab.labs.tuning.questions import Question
from eab.models.base import LanguageModel
from eab.run import RunState, fold


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
