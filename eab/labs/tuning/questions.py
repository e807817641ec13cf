"""Questions with known answers: JSON lines files, and the bundled file."""

import json
import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from eab.assets import ASSETS
from eab.errors import QuestionsError
from eab.events.fields import PromptText
from eab.record.typed_json import NotDeclaredError, read

BUNDLED: Final = ASSETS / "questions" / "embedded.jsonl"

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


def load_questions(file: Path = BUNDLED) -> list[Question]:
    """Read questions from a JSON lines file; QuestionsError if a line is wrong.

    Each line has `prompt`; either `answers`, a list of texts, or `distribution`, an object from
    texts to probabilities; and optionally `group`.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise QuestionsError(f"the questions {file} cannot be read: {error}") from error
    found = [_question(line, f"{file}, line {at}") for at, line in enumerate(lines, 1) if line]
    if not found:
        raise QuestionsError(f"{file} has no question; write one JSON object per line")
    return found


def _question(line: str, where: str) -> Question:
    try:
        given = json.loads(line)
    except ValueError as error:
        raise QuestionsError(f"{where} is not JSON: {error}") from error
    question = question_of(given, where)
    if bool(question.answers) == bool(question.distribution):
        raise QuestionsError(f"{where} needs either answers or a distribution")
    return question


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
