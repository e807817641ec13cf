"""The questions that a lecturer asks a class, and the numbers of anonymous answers. Some are about
a token of a run: which word comes next, and whether it forks.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from eab import token_text
from eab.errors import ClassError
from eab.formatting import counted, quoted
from eab.run import RunState
from eab.run.events import RunStarted
from eab.run.tree import Path

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


NEXT: Final = "Which word comes next?"
FORK: Final = "Will the text fork here?"
GAP: Final = "___"
_LONGEST_PASSAGE: Final = 120  # characters before the gap
_LETTERS: Final = re.compile(r"(?:['’]?\w)*")
_REST: Final = "…"  # marks where a word or passage is cut


def next_question(run: RunState, path: int, index: int) -> ClassQuestion | None:
    """Ask which of the likely tokens follows, shown as whole words where a text of the run has
    them. None if fewer than two are likely.
    """
    token = run.paths[path].tokens[index]
    candidates = token.candidates[:MOST_OPTIONS]
    options: dict[str, int] = {}  # token id by option
    for candidate in candidates:
        word = _word(run, path, index, candidate.token, candidate.text)
        exactly = token_text.visible(candidate.text).replace(" ", "␣")
        named = exactly if word in ("", *options) else word
        options.setdefault(named, candidate.token)
    if len(options) < 2:
        return None
    options = dict(sorted(options.items()))  # the order of likelihood would be a hint
    probabilities = {candidate.token: candidate.probability for candidate in candidates}
    taken = [*options.values()]
    return ClassQuestion(
        NEXT,
        tuple(options),
        tuple(probabilities[each] for each in taken),
        taken.index(token.id) if token.id in taken else None,
        passage=_passage(run, path, index),
    )


def fork_question(run: RunState, path: int, index: int) -> ClassQuestion:
    """Ask whether the path forks at this token."""
    forks = index == 0 and run.paths[path].parent >= 0
    words = f"{FORK} The threshold is {run.started.threshold_nats:.2f} nats."
    right = 0 if forks else 1
    return ClassQuestion(words, ("Yes", "No"), right=right, passage=_passage(run, path, index))


def _passage(run: RunState, path: int, index: int) -> str:
    """The end of the text before the token, followed by a gap."""
    own = run.paths[path].tokens
    before = [*run.tokens(path)][: -len(own[index:])]
    text = f"{_beginning(run.started)}{token_text.join(token.shown for token in before)}"
    words = " ".join(token_text.visible(text).split())
    if len(words) > _LONGEST_PASSAGE:
        words = f"{_REST} {words[-_LONGEST_PASSAGE:].partition(' ')[2]}"
    return words + ("" if own[index].shown[:1].isalnum() and before else " ") + GAP


def _beginning(started: RunStarted) -> str:
    """The text that the run continues; in a chat, the message that it answers."""
    answers = started.is_chat and started.beginning == started.prompt
    return f"{started.beginning} → " if answers else started.beginning


def _word(run: RunState, path: int, index: int, token: int, text: str) -> str:
    """The word that starts with the token, completed from a text of the run that has it there."""
    word = text.strip()
    if not word[-1:].isalnum():
        return token_text.visible(word)
    starts = (each for each in _alternatives(run, path, index) if each.tokens[index].id == token)
    start = next(starts, None)
    more, is_whole = _rest_of_word(start, index) if start is not None else ("", False)
    return token_text.visible(word + more) + ("" if is_whole else _REST)


def _rest_of_word(path: Path, index: int) -> tuple[str, bool]:
    """The rest of the word that starts at this token, and whether the word is complete."""
    rest = ""
    for token in path.tokens[index + 1 :]:
        letters = _LETTERS.match(token.shown)
        rest += letters[0] if letters else ""
        if not letters or letters.end() < len(token.shown) or token.special:
            return rest, True
    return rest, path.status == "finished"


def _alternatives(run: RunState, path: int, index: int) -> Iterator[Path]:
    """The paths with a token at this place: at a fork all siblings, else only the path."""
    own = run.paths[path]
    siblings = run.paths[own.parent].children if index == 0 and own.parent >= 0 else (path,)
    return (run.paths[each] for each in siblings if len(run.paths[each].tokens) > index)
