"""Answers every question greedily, by a tree, and by independent texts for about equal tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from eab.analysis.answer_parts import Part
from eab.analysis.answers import group_answers
from eab.analysis.independent_texts import mean_tokens_per_text
from eab.analysis.same_answer import SameAnswer
from eab.analysis.uncertainty import uncertainty
from eab.caches.prefix_cache import PrefixCache
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.request import Request
from eab.labs.measurement import Values
from eab.labs.tuning.evaluation_report import GREEDY, INDEPENDENT, SEMANTIC, TREE
from eab.labs.tuning.prompt_sets import Question
from eab.models.base import LanguageModel
from eab.run import RunState, fold


def answer_rows(
    model: LanguageModel,
    config: BranchingConfig,
    questions: Sequence[Question],
    part: Part,
    same: SameAnswer,
    prefixes: PrefixCache | None = None,
) -> Iterator[Values]:
    """Answer all questions in each way: a row per way of sampling and question.

    `config` has the settings of the tree; its policy must branch. The independent texts together
    are expected to take about as many tokens as all trees. Prefixes let all ways share a computed
    prompt.
    """
    ways = {GREEDY: replace(config, policy="greedy"), TREE: config, INDEPENDENT: config}
    tokens = per_text = 0.0
    for way, settings in ways.items():
        if way == INDEPENDENT:
            texts = max(1, round(tokens / per_text)) if per_text else 1
            settings = replace(settings, policy="independent", max_paths=texts)
        for number, question in enumerate(questions):
            # A new seed for each, or the same random numbers would decide all questions.
            seeded = replace(settings, seed=(settings.seed + number) % 2**31)
            asked = Request(question.prompt, seeded)
            run = fold(event_stream(model, asked, prefixes=prefixes))
            run.raise_if_failed()
            row = {"sampling": way, **_row(question, run, part, same)}
            if way == TREE:
                per_text += mean_tokens_per_text(run)
                tokens += row["tokens"]
            yield row


def _row(question: Question, run: RunState, part: Part, same: SameAnswer) -> Values:
    """What is asked, what is answered, and the scores (None if not measured; higher is more
    uncertain).
    """
    answers = group_answers(run, part, same)
    top, scores = answers.ranked[0], uncertainty(run, answers)
    right = any(same(question.prompt, top.name, known) for known in question.answers)
    return {
        "group": question.group,
        "prompt": question.prompt,
        "true_entropy": question.entropy if question.distribution else None,
        "answer": top.name,
        "right": right if question.answers else None,  # None if chance decides the answer
        "texts": run.started.config.max_paths,
        "tokens": run.tokens_needed - len(run.started.prompt_tokens),
        SEMANTIC: scores.semantic,
        "semantic entropy, Rao-Blackwellised": scores.rao_blackwellised,
        "predictive entropy": scores.predictive,
        "length-normalised predictive entropy": scores.length_normalised,
        "1 - P(most likely answer)": 1.0 - top.estimate,
        "unexplored probability": 1.0 - scores.explored,
        "length of the answer": float(len(top.name)),
    }
