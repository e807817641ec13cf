"""Measures a run to make its cell, answers questions to judge scores of uncertainty, and finds the
rule that compares answers by its name.

Such a rule may be a model of natural language inference (NLI): as in semantic entropy (Kuhn et al.,
2023; Farquhar et al., 2024), two answers are the same if each entails the other, given the
question.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from eab.analysis.answer_rules import RULES, SENTENCE, Part, SameAnswer, check_part
from eab.analysis.answers import Answers, group_answers
from eab.analysis.label_rules import labelled
from eab.analysis.labels import Label
from eab.analysis.run_comparison import mean_tokens_per_text
from eab.analysis.uncertainty import uncertainty
from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.errors import ConfigError, ModelError
from eab.formatting import quoted
from eab.labs.measurement import Values
from eab.labs.tuning.evaluation_report import GREEDY, INDEPENDENT, SEMANTIC, TREE
from eab.labs.tuning.grid import Cell
from eab.labs.tuning.prompt_sets import Question, TuningPrompt
from eab.run import RunState, fold
from eab.run.events import LabelRule

if TYPE_CHECKING:
    from eab.engine.caches.prefix_cache import PrefixCache
    from eab.engine.models.base import LanguageModel


PART: Final = SENTENCE
SAME_ANSWER: Final = "content"
NLI: Final = "nli:"  # such rules load a model


@dataclass(frozen=True, slots=True)
class Measurement:
    """How the answers of a run are read; ConfigError if the part or the rule does not exist."""

    part: Part = PART  # which part of a text is its answer: `text` or `sentence`
    same_answer: str = SAME_ANSWER  # the rule that compares answers; see `check_rule`
    keep_runs: bool = False
    reuse_prompts: bool = True  # whether all runs share a computed prompt

    def __post_init__(self) -> None:
        check_part(self.part)
        check_rule(self.same_answer)

    def cell(
        self,
        key: str,
        prompt: TuningPrompt,
        config: BranchingConfig,
        run: RunState,
        *,
        seconds: float | None,
        run_file: str | None,
    ) -> Cell:
        """The cell of a finished run; `seconds` is None if the run was resimulated."""
        question, same = prompt.question, load_rule(self.same_answer)
        answers = group_answers(run, self.part, same)
        scores = uncertainty(run, answers)
        right, wrong = _split(question.prompt, question.answers, answers, same)
        last, label = run.last_kv, _label(run, question.label)
        return Cell(
            key=key,
            prompt_id=prompt.id,
            group=question.group,
            prompt=question.prompt,
            config=config,
            made="run" if seconds is not None else "resimulated",
            seconds=seconds,
            tokens=run.tokens_needed,
            forks=len(run.forks()),
            paths=len(run.leaves()),
            kv_bytes=last.peak_bytes if last is not None else 0,
            distinct_texts=len({run.text(leaf.id) for leaf in run.leaves()}),
            distinct_answers=len(answers.ranked),
            probability_seen=answers.explored,
            semantic_entropy=scores.semantic,
            semantic_entropy_error=scores.standard_error,
            distribution_error=_distribution_error(
                question.prompt, question.distribution, answers, same
            ),
            correct=right if question.answers else None,
            brier=brier_score(right, wrong) if question.answers else None,
            run_file=run_file,
            label=label.estimate if label is not None else None,
            label_width=label.high - label.low if label is not None else None,
        )


def _label(run: RunState, word: str) -> Label | None:
    if not word:
        return None
    return labelled(run, [LabelRule("label", "contains", text=word)])["label"]


def _split(
    prompt: str, texts: Sequence[str], answers: Answers, same: SameAnswer
) -> tuple[float, list[float]]:
    """The total weight of answers that match one of the texts, and each other answer's weight."""
    among, others = list[float](), list[float]()
    for answer in answers.ranked:
        matches = any(same(prompt, answer.name, text) for text in texts)
        (among if matches else others).append(answer.estimate)
    return math.fsum(among), others


def _distribution_error(
    prompt: str, known: Mapping[str, float], answers: Answers, same: SameAnswer
) -> float | None:
    if not known:
        return None
    estimates = [_split(prompt, (text,), answers, same)[0] for text in known]
    differences = [
        estimate - other for estimate, other in zip(estimates, known.values(), strict=True)
    ]
    differences.append(
        math.fsum(answer.estimate for answer in answers.ranked) - math.fsum(estimates)
    )
    return math.sqrt(math.fsum(difference**2 for difference in differences) / len(differences))


def brier_score(right: float, wrong: Sequence[float]) -> float:
    """The Brier score of the answers' weights: the sum of (weight - [the answer is right])².

    It is a proper score: the best weights are the probabilities that one believes. It ranges from 0
    (all weight on the right answer) to 2 (all weight on one wrong answer).

    Source: G. W. Brier, Verification of forecasts expressed in terms of probability, Monthly
    Weather Review 78 (1950), 1-3.

    Args:
        right: The weight of all right answers, 0 to 1.
        wrong: The weight of each other answer. Weight missing from a sum of 1 counts as one more.
    """
    unseen = max(0.0, 1.0 - math.fsum([right, *wrong]))
    return math.fsum([(1.0 - right) ** 2, unseen**2, *(weight**2 for weight in wrong)])


def check_rule(name: str) -> None:
    """Raise ConfigError if there is no rule with this name; nothing is loaded."""
    if name in RULES or (name.startswith(NLI) and _model_of(name)):
        return
    raise ConfigError(
        f"answers are compared by {name!r}; it must be one of: {', '.join(RULES)}, or {NLI} and "
        "the folder or Hub id of an NLI model"
    )


@lru_cache(maxsize=1)
def load_rule(name: str) -> SameAnswer:
    """The cached rule `name`; ConfigError if unknown, ModelError if its model fails to load."""
    check_rule(name)
    if name in RULES:
        return RULES[name]
    return load_entailment(_model_of(name))


def _model_of(name: str) -> str:
    return name.removeprefix(NLI).strip()


ENTAILMENT: Final = "entailment"


class Entailment:
    """A rule of `eab.analysis.answer_rules`: texts that entail each other are the same.

    The question is put before both texts. Each pair is read once in each direction and remembered.
    Entailment is not transitive, so a text joins the first group whose first text is the same.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str) -> None:
        self._model, self._tokenizer = model.eval(), tokenizer
        self._entailment = _entailment_label(model.config.id2label, name)
        self._known: dict[tuple[str, str], bool] = {}

    def __call__(self, question: str, one: str, other: str) -> bool:
        """Whether each of the two texts entails the other; symmetric."""
        first, second = f"{question} {one.strip()}", f"{question} {other.strip()}"
        return self._entails(first, second) and self._entails(second, first)

    def _entails(self, premise: str, hypothesis: str) -> bool:
        pair = (premise, hypothesis)
        if pair not in self._known:
            self._known[pair] = self._most_likely(premise, hypothesis) == self._entailment
        return self._known[pair]

    def _most_likely(self, premise: str, hypothesis: str) -> int:
        import torch

        inputs = self._tokenizer(premise, hypothesis, return_tensors="pt", truncation=True)
        with torch.inference_mode():
            logits = self._model(**inputs.to(self._model.device)).logits
        return int(logits[0].argmax())


def load_entailment(name: str) -> Entailment:
    """Load an NLI model from a folder, or by its id on the Hugging Face Hub.

    Only weights in safetensors are loaded, and no code from the Hub is run.

    Raises:
        ModelError: It cannot be loaded, or has no label "entailment".
    """
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from eab.engine.models.pretrained import (
        limit_of_folder,
        read_config,
        refuse_absurd_size,
        refuse_missing_weights,
        refuse_other_shards,
    )

    options: dict[str, Any] = {"trust_remote_code": False}
    try:
        refuse_other_shards(name)
        config, folder = read_config(name, name, options), name if os.path.isdir(name) else None
        limit, kind = limit_of_folder(folder), AutoModelForSequenceClassification
        refuse_absurd_size(name, config, limit, torch.float32, auto_class=kind)
        tokenizer = AutoTokenizer.from_pretrained(name, **options)
        options |= {"use_safetensors": True, "output_loading_info": True}
        loaded: Any = AutoModelForSequenceClassification.from_pretrained(name, **options)
        model, info = loaded
        refuse_missing_weights(name, info)
    except ModelError:
        raise
    except Exception as error:  # transformers raises anything for a damaged or hostile folder
        raise ModelError(
            f"the NLI model {quoted(name)} cannot be loaded ({type(error).__name__}); give a "
            "folder or a Hub id of a model for sequence classification"
        ) from error
    return Entailment(model, tokenizer, name)


def _entailment_label(labels: dict[int, str], name: str) -> int:
    for number, label in labels.items():
        if label.casefold() == ENTAILMENT:
            return int(number)
    known = ", ".join(labels.values())
    raise ModelError(
        f"the model {quoted(name)} has the labels {known:.200}; one must be {ENTAILMENT!r}. "
        "Choose a model that was trained for natural language inference"
    )


def answer_rows(
    model: "LanguageModel",
    config: BranchingConfig,
    questions: Sequence[Question],
    part: Part,
    same: SameAnswer,
    prefixes: "PrefixCache | None" = None,
) -> Iterator[Values]:
    """Answer all questions in each way: a row per way of sampling and question.

    `config` has the settings of the tree; its policy must branch. The independent texts together
    are expected to take about as many tokens as all trees. Prefixes let all ways share a computed
    prompt.
    """
    from eab.engine.loop import event_stream

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
            row = {"sampling": way, **_answer_row(question, run, part, same)}
            if way == TREE:
                per_text += mean_tokens_per_text(run)
                tokens += row["tokens"]
            yield row


def _answer_row(question: Question, run: RunState, part: Part, same: SameAnswer) -> Values:
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
