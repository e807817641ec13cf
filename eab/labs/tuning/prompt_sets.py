"""The prompts of a sweep: bundled sets with known answers, and the user's own files.

In a file of JSON lines, each object has `prompt` and optionally `id`, `group`, and `answers` (a
list of right texts) or `distribution` (probabilities by text), and `label` (the word whose
probability is measured). A .csv file has columns with these
names, `|` between answers, and no distribution. A .txt file has one prompt per line.
"""

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Final

from msgspec import Meta

from eab.assets import ASSETS
from eab.branching.own import GivenPolicy
from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.errors import ConfigError, QuestionsError, check_one_of
from eab.events import Message
from eab.events.fields import MAX_RULE, PromptText, RuleText
from eab.formatting import counted, quoted
from eab.record.files import Line, checked_id, default_id, items_of, lines_of, read_text
from eab.record.typed_json import NotDeclaredError, read

QUESTIONS: Final = ASSETS / "questions" / "embedded.jsonl"  # for the embedded model
STORIES: Final = ASSETS / "questions" / "stories.jsonl"
# The groups of bundled questions in each set
SETS: Final[Mapping[str, tuple[str, ...]]] = {
    "facts": (
        "capitals, best known",
        "capitals, common",
        "capitals, rarely shown",
        "general facts",
    ),
    "chances": ("fixed sentences", "chains of choices"),
    "bags": ("balls in a bag", "finds or loses"),
    "sums": ("sums in words", "sums in digits"),
    "stories": ("stories",),
}
_FIELDS: Final = ("prompt", "id", "group", "answers", "distribution", "label")
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
    label: RuleText = ""  # texts that contain it, ignoring case, have the label of this prompt

    @property
    def entropy(self) -> float:
        """Entropy of the distribution, in nats."""
        return math.fsum(-p * math.log(p) for p in self.distribution.values() if p > 0)


@dataclass(frozen=True, slots=True)
class TuningPrompt:
    """One prompt of a set."""

    id: str  # its name in the table of cells
    question: Question
    # Sent instead of the question's prompt, which is then only a title
    messages: tuple[Message, ...] = ()
    token_ids: tuple[int, ...] = ()

    def request(self, config: BranchingConfig, policy: GivenPolicy | None = None) -> Request:
        """The request for the model, perhaps with a policy of the caller's own."""
        prompt = "" if self.messages or self.token_ids else self.question.prompt
        chat, ids = self.messages, self.token_ids
        return Request(prompt, config, messages=chat, token_ids=ids, policy=policy)


def bundled_prompts(name: str) -> list[TuningPrompt]:
    """The prompts of a bundled set; ConfigError if the name is not in `SETS`."""
    check_one_of(SETS, name, "the prompt set is")
    if name == "stories":
        return read_prompts(str(STORIES))
    questions = [q for q in read_questions(str(QUESTIONS)) if q.group in SETS[name]]
    return [
        TuningPrompt(f"{name}-{number:03d}", question)
        for number, question in enumerate(questions, start=1)
    ]


def read_questions(name: str) -> list[Question]:
    """The prompts of a set or file, which must all have known answers; see `read_prompts`."""
    prompts = read_prompts(name)
    unknown = [
        each.id for each in prompts if not (each.question.answers or each.question.distribution)
    ]
    if unknown:
        raise ConfigError(
            f"{name} has {counted(len(unknown), 'prompt')} with neither answers nor a "
            f"distribution, the first with the id {quoted(unknown[0])}; add one of them"
        )
    return [each.question for each in prompts]


def read_prompts(name: str) -> list[TuningPrompt]:
    """The prompts of a set in `SETS` or of a file; `-` reads JSON lines from standard input.

        prompts = eab.read_prompts("prompts.jsonl")

    Raises:
        RecordError: The file cannot be read.
        ConfigError: A line is wrong, or there are no prompts.
    """
    if not isinstance(name, str):
        raise ConfigError(
            f"the prompts are {quoted(name)}; give the name of a file, or of a set: "
            f"{', '.join(SETS)}"
        )
    if name in SETS:
        return bundled_prompts(name)
    return items_of(name, _csv_rows(name) if name.endswith(".csv") else lines_of(name), _prompt)


def _csv_rows(name: str) -> Iterator[Line]:
    rows = csv.DictReader(io.StringIO(read_text(name), newline=""), strict=True)
    try:
        if "prompt" not in (rows.fieldnames or ()):
            raise ConfigError(f"{name} has no column prompt; name it in the first line")
        for row in rows:
            yield rows.line_num, partial(_from_csv, row)
    except csv.Error as error:
        raise ConfigError(f"{name} is not CSV after line {rows.line_num}: {error}") from error


def _from_csv(row: Mapping[str | None, Any]) -> dict[str, Any]:
    if None in row:
        raise ConfigError("it has more fields than the first line; put text with commas in quotes")
    if row.get("distribution"):
        raise ConfigError("a CSV file cannot contain a distribution; use JSON lines")
    given: dict[str, Any] = {str(name): value for name, value in row.items() if value}
    if "answers" in given:
        given["answers"] = [text.strip() for text in given["answers"].split("|")]
    return given


def _prompt(number: int, given: dict[str, Any]) -> TuningPrompt:
    unknown = [name for name in given if name not in _FIELDS]
    if unknown:
        raise ConfigError(
            f"there is no field {quoted(unknown[0])}; a prompt has: {', '.join(_FIELDS)}. Settings "
            "are options of the sweep"
        )
    own = {key: value for key, value in given.items() if key != "id"}
    try:
        question = read(own, Question)
    except NotDeclaredError as error:
        raise QuestionsError(f"it is not a question: {error}") from error
    check_question(question, "it")
    if question.answers and question.distribution:
        raise ConfigError("it has answers and a distribution; give only one of them")
    return TuningPrompt(checked_id(given.get("id", default_id(number))), question)


def labelled_prompt(prompt: TuningPrompt, word: str) -> TuningPrompt:
    """The prompt with this label, unless the word is empty; ConfigError if it is too long."""
    if not word.strip():
        return prompt
    if len(word) > MAX_RULE:
        raise ConfigError(
            f"the label has {len(word):,} characters; at most {MAX_RULE} are allowed. Shorten it"
        )
    return replace(prompt, question=replace(prompt.question, label=word.strip()))


def check_question(question: Question, where: str) -> None:
    """Raise QuestionsError, starting with `where`, for empty texts or wrong probabilities."""
    if not all(text.strip() for text in (question.prompt, *question.answers)):
        raise QuestionsError(f"{where} has an empty prompt or answer; write some words")
    total = math.fsum(question.distribution.values())
    if question.distribution and not math.isclose(total, 1.0, abs_tol=1e-6):
        raise QuestionsError(f"{where}: the probabilities sum to {total:g}; they must sum to 1")
