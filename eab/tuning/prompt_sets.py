"""The prompts of a sweep: bundled sets with known answers, and files of one's own."""

from dataclasses import dataclass
from typing import Any

from eab.evaluation.questions import Question


@dataclass(frozen=True, slots=True)
class TuningPrompt:
    """One prompt of a set.

    Attributes:
        id: Names it in the table of cells.
        question: The prompt, with what is known of its answers.
    """

    id: str
    question: Question

    def as_json(self) -> dict[str, Any]:
        """All of it, as JSON values."""
        return {
            "id": self.id,
            "prompt": self.question.prompt,
            "answers": [*self.question.answers],
            "distribution": dict(self.question.distribution),
            "group": self.question.group,
        }
