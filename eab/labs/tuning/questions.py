"""Questions with known answers: files of JSON lines, and the bundled one."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from eab.assets import ASSETS
from eab.errors import QuestionsError

BUNDLED: Final = ASSETS / "questions" / "embedded.jsonl"


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt, as a rule one whose answer, or distribution of answers, is known.

    Attributes:
        prompt: What the model continues.
        answers: Texts that are right; empty if there is a distribution, or nothing is known.
        distribution: Probability of each answer, where chance decides; they sum to 1. Empty if
            there are answers, or nothing is known.
        group: The kind of question.
    """

    prompt: str
    answers: tuple[str, ...]
    distribution: Mapping[str, float]
    group: str

    @property
    def entropy(self) -> float:
        """Of the distribution, in nats."""
        return math.fsum(-p * math.log(p) for p in self.distribution.values() if p > 0)


def load_questions(file: Path = BUNDLED) -> list[Question]:
    """Read questions from a file of JSON lines.

    Each line is an object with `prompt`; with `answers`, a list of texts, or `distribution`, an
    object from texts to probabilities; and with `group`, if you like.

    Raises:
        QuestionsError: The file cannot be read, is empty, or a line is not such an object.
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
    """The question that JSON values describe; its answers may be unknown.

    Args:
        given: An object with `prompt`, perhaps `answers`, `distribution` and `group`.
        where: Where they come from, for the message.

    Raises:
        QuestionsError: They describe none.
    """
    if not isinstance(given, dict) or not _is_text(given.get("prompt")):
        raise QuestionsError(f"{where} must be a JSON object with a non-empty prompt")
    answers, distribution = given.get("answers", []), given.get("distribution", {})
    if not (_are_texts(answers) and _is_distribution(distribution)):
        raise QuestionsError(
            f"{where}: answers must be a list of texts, and distribution an object from texts to "
            "probabilities that sum to 1"
        )
    return Question(given["prompt"], tuple(answers), distribution, str(given.get("group", "")))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_distribution(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    masses = list(value.values())
    if not all(isinstance(mass, int | float) and 0 <= mass <= 1 for mass in masses):
        return False
    return not masses or math.isclose(math.fsum(masses), 1.0, abs_tol=1e-6)
