"""The prompts of a sweep: bundled sets with known answers, and the user's own files.

In a file of JSON lines, each object has `prompt` or `messages` and optionally `id`, `group`, and
`answers` (a list of right texts) or `distribution` (probabilities by text), `label` (the word whose
probability is measured), and settings that are this prompt's alone. A .csv file has columns with
these names, `|` between answers, no distribution and no messages. A .txt file has one prompt per
line.
"""

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from typing import Annotated, Any, Final

from msgspec import Meta

from eab.assets import ASSETS
from eab.config import BranchingConfig
from eab.engine.branching.own import GivenPolicy
from eab.engine.branching.presets import OF_PRESETS, overridden, starting_config
from eab.engine.request import Request
from eab.errors import ConfigError, QuestionsError, check_one_of
from eab.formatting import counted, quoted
from eab.run.events import Message
from eab.run.events.chat import prompt_or_messages
from eab.run.events.fields import MAX_RULE, PromptText, RuleText
from eab.run.record.files import Line, checked_id, default_id, items_of, lines_of, read_text
from eab.text_values import NotDeclaredError, read

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
SET_LABELS: Final[Mapping[str, str]] = {
    "chances": "Chances with known odds",
    "bags": "Balls in a bag",
    "facts": "Facts",
    "sums": "Sums",
    "stories": "Stories",
}
_OF_QUESTIONS: Final = ("group", "answers", "distribution", "label")
_OF_CSV: Final = frozenset(("prompt", "id", "group", "answers", "label"))
_OF_THRESHOLD: Final = ("entropy_threshold", "threshold_unit")
_QUESTION: Final = re.compile("Question: (.*)\nAnswer:")
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
    # Settings of this prompt alone, by their names in eab.config, or a preset
    settings: dict[str, Any] = field(default_factory=dict)

    def config(self, config: BranchingConfig) -> BranchingConfig:
        """The settings of a sweep with those of this prompt; a threshold without a unit is in nats.
        ConfigError if a value is not allowed.
        """
        if not self.settings:
            return config
        others = asdict(config)
        if self.settings.keys() & {*_OF_THRESHOLD}:
            others = {name: others[name] for name in others if name not in _OF_THRESHOLD}
        return starting_config(**overridden(others, self.settings))

    @property
    def decided(self) -> frozenset[str]:
        """The settings that the prompt decides by itself."""
        more = (*OF_PRESETS,) if "preset" in self.settings else ()
        more += _OF_THRESHOLD if self.settings.keys() & {*_OF_THRESHOLD} else ()
        return frozenset((*self.settings, *more))

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
    other = [each.id for each in prompts if each.messages or each.settings]
    if other:
        raise ConfigError(
            f"{name} has messages or settings in the question {quoted(other[0])}; a question has "
            "only a prompt"
        )
    return [each.question for each in prompts]


@lru_cache(maxsize=16)
def some_prompts(name: str, count: int) -> tuple[TuningPrompt, ...]:
    """`count` prompts of a bundled set, evenly spaced; all if it has fewer."""
    every = bundled_prompts(name)
    number = min(count, len(every))
    return tuple(every[place * len(every) // number] for place in range(number))


@lru_cache(maxsize=1)
def chat_questions() -> tuple[Question, ...]:
    """A hundred of the facts, as questions to a chat model."""
    asked = [
        replace(one.question, prompt=f"{stem[1]} Answer in a few words.")
        for one in bundled_prompts("facts")
        if (stem := _QUESTION.fullmatch(one.question.prompt))
    ]
    return tuple(one for number, one in enumerate(asked) if number % 7)[:100]


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
    given: dict[str, Any] = {str(name): value for name, value in row.items() if value}
    if other := given.keys() - _OF_CSV:
        raise ConfigError(f"a CSV file cannot contain {quoted(min(other))}; use JSON lines")
    if "answers" in given:
        given["answers"] = [text.strip() for text in given["answers"].split("|")]
    return given


def _prompt(number: int, given: dict[str, Any]) -> TuningPrompt:
    id = checked_id(given.pop("id", default_id(number)))
    prompt, messages = prompt_or_messages(given.pop("prompt", None), given.pop("messages", None))
    about = {name: given.pop(name) for name in _OF_QUESTIONS if name in given}
    try:
        question = read({"prompt": prompt} | about, Question)
    except NotDeclaredError as error:
        raise QuestionsError(f"it is not a question: {error}") from error
    check_question(question, "it")
    if question.answers and question.distribution:
        raise ConfigError("it has answers and a distribution; give only one of them")
    starting_config(**given)  # the rest are settings; refuses bad ones
    return TuningPrompt(id, question, messages, settings=given)


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
