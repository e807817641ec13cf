"""Questions, usually with known answers."""

import math
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from msgspec import Meta

from eab.errors import QuestionsError
from eab.events.fields import PromptText
from eab.record.typed_json import NotDeclaredError, read

Probability = Annotated[float, Meta(ge=0.0, le=1.0)]


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt, usually with known answers or a known distribution of answers."""

    prompt: PromptText  # the text that the model continues
    answers: tuple[PromptText, ...] = ()  # right answers, if known
    # Probability of each answer if chance decides; they sum to 1. Empty if there are answers or
    # nothing is known.
    distribution: dict[PromptText, Probability] = field(default_factory=dict)
    group: PromptText = ""  # the kind of question

    @property
    def entropy(self) -> float:
        """Entropy of the distribution, in nats."""
        return math.fsum(-p * math.log(p) for p in self.distribution.values() if p > 0)


def question_of(given: Any, where: str) -> Question:
    """The question in these JSON values; a QuestionsError starts with `where`."""
    try:
        question = read(_of_question(given), Question)
    except NotDeclaredError as error:
        raise QuestionsError(f"{where} is not a question: {error}") from error
    check_question(question, where)
    return question


def check_question(question: Question, where: str) -> None:
    """Raise QuestionsError, starting with `where`, for empty texts or wrong probabilities."""
    if not all(text.strip() for text in (question.prompt, *question.answers)):
        raise QuestionsError(f"{where} has an empty prompt or answer; write some words")
    total = math.fsum(question.distribution.values())
    if question.distribution and not math.isclose(total, 1.0, abs_tol=1e-6):
        raise QuestionsError(f"{where}: the probabilities sum to {total:g}; they must sum to 1")


def _of_question(given: Any) -> Any:
    names = [each.name for each in fields(Question)]
    return {key: given[key] for key in names if key in given} if type(given) is dict else given
