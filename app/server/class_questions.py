"""The questions that a lecturer asks a class, and the numbers of anonymous answers."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from eab.errors import ClassError
from eab.formatting import counted, quoted

FEWEST_OPTIONS: Final = 2
MOST_OPTIONS: Final = 6
LONGEST: Final = 200  # characters of a question or an option
_COLUMNS: Final = (
    "question", "text", "passage", "option", "answers", "model probability", "came true", "revealed"
)  # fmt: skip
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


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


def as_csv(asked: Sequence[AskedQuestion]) -> str:
    """A CSV table with a line per option of each question. It cannot say who answered."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(_COLUMNS)
    for each in asked:
        question = each.question
        for number, option in enumerate(question.options):
            given = question.probabilities
            probability = "" if given is None else f"{given[number]:.6f}"
            right = question.right
            came_true = "" if right is None else str(number == right).lower()
            rows.writerow(
                [
                    each.number,
                    _cell(question.text),
                    _cell(question.passage),
                    _cell(option),
                    each.counts[number],
                    probability,
                    came_true,
                    str(each.revealed).lower(),
                ]
            )
    return text.getvalue()


def _cell(text: str) -> str:
    """The text, changed so that no spreadsheet takes it for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
