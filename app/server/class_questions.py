"""The questions that a lecturer asks a class, and the numbers of anonymous answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from eab.errors import ClassError
from eab.formatting import counted, quoted

FEWEST_OPTIONS: Final = 2
MOST_OPTIONS: Final = 6
LONGEST: Final = 200  # characters of a question or an option
_COLUMNS: Final = [
    "question", "text", "passage", "option", "answers", "model probability", "came true", "revealed"
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClassQuestion:
    """A multiple-choice question. Raises ClassError if it is not valid."""

    text: str
    options: tuple[str, ...]  # all different
    # the model's probability of each option; None if there are none
    probabilities: tuple[float, ...] | None = None
    right: int | None = None  # index of the option that came true, if any
    # id of the lesson that asks it, and key of the lesson's data; None if no lesson asks it
    lesson: tuple[str, str] | None = None
    passage: str = ""  # the text in question, with a gap; empty if there is none

    def __post_init__(self) -> None:
        if not FEWEST_OPTIONS <= len(self.options) <= MOST_OPTIONS:
            raise ClassError(
                f"the question has {counted(len(self.options), 'option')}; give {FEWEST_OPTIONS} "
                f"to {MOST_OPTIONS}, one per line"
            )
        for text in (self.text, *self.options):
            if not text.strip() or len(text) > LONGEST:
                raise ClassError(
                    f"{quoted(text)} has {len(text)} characters; a question and its options have 1 "
                    f"to {LONGEST} each"
                )
        if len(set(self.options)) < len(self.options):
            raise ClassError("two options are the same; make them different")
        if self.probabilities is not None and len(self.probabilities) != len(self.options):
            raise ClassError("the question needs one probability for each option, or none at all")
        if self.right is not None and not 0 <= self.right < len(self.options):
            raise ClassError(f"the question has no option number {self.right}")

    @property
    def has_answer(self) -> bool:
        """Whether the charts of a run would give the answer away."""
        return self.right is not None or self.probabilities is not None


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question as the lecturer's screen shows it."""

    number: int  # 1 for the first question of the class
    question: ClassQuestion
    counts: tuple[int, ...]  # number of answers per option
    revealed: bool = False  # whether the class sees the counts and what the model says

    @property
    def answers(self) -> int:
        """The number of answers."""
        return sum(self.counts)


def answers_table(asked: Sequence[AskedQuestion]) -> pd.DataFrame:
    """A row per option of each question. It cannot say who answered."""
    rows = [
        (
            each.number,
            each.question.text,
            each.question.passage,
            option,
            each.counts[number],
            "" if (given := each.question.probabilities) is None else f"{given[number]:.6f}",
            "" if (right := each.question.right) is None else str(number == right).lower(),
            str(each.revealed).lower(),
        )
        for each in asked
        for number, option in enumerate(each.question.options)
    ]
    return pd.DataFrame(rows, columns=_COLUMNS)
