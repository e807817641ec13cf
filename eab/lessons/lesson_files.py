"""Reads lesson files, which are untrusted; `docs/lessons.md` describes the format. The lessons of
this project are bundled with it.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

from msgspec import Meta

from eab.assets import ASSETS
from eab.errors import LessonError, check_one_of
from eab.formatting import counted, quoted
from eab.lessons.lesson import (
    ExerciseSection,
    Goal,
    Lesson,
    QuestionSection,
    ReadingSection,
    Script,
    Section,
    StepSection,
    Topic,
)
from eab.lessons.measures import PARTS, LessonQuantity, Source, parse
from eab.lessons.pictures import CALCULATORS, PICTURES
from eab.text_values import NotDeclaredError, read

MAX_BYTES: Final = 64 * 1024
MAX_SECTIONS: Final = 12
MAX_LINE: Final = 120  # characters in a title
STEPS: Final = range(2, 6)
_FRONT: Final = re.compile(r"\A\+\+\+\n(?P<toml>.*?)\n\+\+\+\n(?P<body>.*)\Z", re.DOTALL)
_HEADING: Final = re.compile(r"^## +(.+)$", re.MULTILINE)
_BLOCK: Final = re.compile(r"^```(step|predict|exercise)\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
_NUMBER: Final = re.compile(r"\{\{(?!\{)(.*?)\}\}", re.DOTALL)
_HTML: Final = re.compile(r"<[a-zA-Z/!?]")
_PICTURE: Final = re.compile(r"!\[")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")


Line = Annotated[str, Meta(min_length=1, max_length=MAX_LINE)]
Value = Annotated[float, Meta(ge=0, le=1e15)]
Page = Literal["explore", "compare", "memory", "bmc", "speculative", "batching", "quantization"]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Front:
    title: Line
    summary: Annotated[str, Meta(min_length=1, max_length=300)]
    run: Line
    page: Page = "explore"
    hides: tuple[Topic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guess(Script):
    measure: Line
    bounds: Annotated[tuple[Value, ...], Meta(min_length=1, max_length=5)]


@dataclass(frozen=True, slots=True)
class _Goal:
    measure: Line
    at_least: Value | None = None
    at_most: Value | None = None
    relative: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task(Script):
    goals: Annotated[tuple[_Goal, ...], Meta(min_length=1, max_length=5)]
    calculator: str = ""


_SCRIPTS: Final[dict[str, type[Script]]] = {"step": Script, "predict": _Guess, "exercise": _Task}


class _Part(NamedTuple):
    title: str
    before: str
    kind: str
    script: str
    after: str


def load(path: Path) -> Lesson:
    """The lesson in this file, whose name is its id; LessonError if it breaks a rule."""
    try:
        return loads(path.read_bytes(), path.stem)
    except OSError as error:
        raise LessonError(f"the lesson {path.name} cannot be read: {error}") from error


def loads(data: bytes, lesson_id: str) -> Lesson:
    """The lesson in these bytes; LessonError names the section that breaks a rule."""
    if not _ID.fullmatch(lesson_id):
        raise LessonError(
            f"a lesson is named {quoted(lesson_id)}; a name has 1 to 60 lowercase letters, "
            "digits and hyphens"
        )
    front = _FRONT.match(_decoded(data))
    if front is None:
        raise LessonError(
            "a lesson begins with a line +++, then its title and summary in TOML, then +++ again"
        )
    top = _read(_toml(front["toml"], "the top of the file"), _Front, "the top of the file")
    pieces = _HEADING.split(front["body"])
    introduction = _words(pieces[0], "the introduction")
    if not introduction:
        raise LessonError("a lesson needs an introduction: what you will see, before the first ##")
    titles, bodies = pieces[1::2], pieces[2::2]
    if len(titles) > MAX_SECTIONS:
        raise LessonError(f"there are {len(titles)} sections; a lesson has at most {MAX_SECTIONS}")
    sections = tuple(
        _section(_split(title.strip(), body)) for title, body in zip(titles, bodies, strict=True)
    )
    _check_order(sections)
    return Lesson(
        lesson_id,
        title=_words(top.title, "the title"),
        summary=_words(top.summary, "the summary"),
        run=top.run,
        page=top.page,
        introduction=introduction,
        sections=sections,
        hides=top.hides,
    )


def numbers_in(text: str) -> list[str]:
    """The quantities that a text names in double braces."""
    return [name.strip() for name in _NUMBER.findall(text)]


def with_numbers(text: str, values: Mapping[str, str]) -> str:
    """The text with each of `numbers_in(text)` replaced by its value, as Markdown."""
    return _NUMBER.sub(lambda match: values[match[1].strip()], text)


def _decoded(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise LessonError(f"the lesson has {len(data):,} bytes; it can have at most {MAX_BYTES:,}")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise LessonError(
            f"the lesson is not UTF-8 text ({error.reason}); save it as UTF-8"
        ) from error
    if match := _CONTROL.search(text):
        raise LessonError(f"the lesson contains the control character {match[0]!r}; remove it")
    return text if text.endswith("\n") else f"{text}\n"


def _toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise LessonError(f"{where} is not valid TOML: {error}") from error


def _words(text: str, where: str) -> str:
    """Check and strip Markdown of a lesson: no HTML, no pictures, only known quantities."""
    if _HTML.search(text):
        raise LessonError(f"{where} contains HTML; only Markdown is allowed. Write &lt; for <")
    if _PICTURE.search(text):
        raise LessonError(f"{where} contains a picture, which lessons cannot load; remove it")
    for name in numbers_in(text):
        _quantity(name, where)
    return text.strip()


def _quantity(measure: str, where: str) -> LessonQuantity:
    try:
        return parse(measure)
    except LessonError as error:
        raise LessonError(f"{where}: {error}") from error


def _split(title: str, body: str) -> _Part:
    where = f"section {quoted(title)}"
    if not title or len(title) > MAX_LINE:
        raise LessonError(f"{where}: a title has 1 to {MAX_LINE} characters")
    _words(title, where)
    blocks = list(_BLOCK.finditer(body))
    if len(blocks) > 1:
        raise LessonError(f"{where} has {len(blocks)} scripts; it can have one")
    if not blocks:
        return _Part(title, _words(body, where), "", "", "")
    (script,) = blocks
    before, after = body[: script.start()], body[script.end() :]
    return _Part(title, _words(before, where), script[1], script[2], _words(after, where))


def _section(part: _Part) -> Section:
    where = f"section {quoted(part.title)}"
    if not part.kind:
        if not part.before:
            raise LessonError(f"{where} is empty")
        return ReadingSection(part.title, part.before)
    given = _read(_toml(part.script, f"the script of {where}"), _SCRIPTS[part.kind], where)
    script = Script(**{each.name: getattr(given, each.name) for each in fields(Script)})
    _check_script(script, where)
    if not part.before:
        raise LessonError(f"{where} needs words before its script")
    if part.kind != "step" and not part.after:
        raise LessonError(f"{where} needs an explanation after its script")
    if isinstance(given, _Guess):
        return _question(part, script, given, where)
    if isinstance(given, _Task):
        return _exercise(part, script, given, where)
    return StepSection(part.title, "\n\n".join(filter(None, (part.before, part.after))), script)


def _read(table: dict[str, Any], kind: type[_T], where: str) -> _T:
    try:
        return read(table, kind)
    except NotDeclaredError as error:
        raise LessonError(f"{where}: {error}") from error


def _check_script(script: Script, where: str) -> None:
    if script.picture:
        check_one_of(PICTURES, script.picture, f"{where}: picture is", LessonError)
    if script.picture and script != Script(picture=script.picture, highlight=script.highlight):
        raise LessonError(f"{where}: a picture has only a highlight; remove the other lines")
    if script.select is not None and script.show is not None:
        raise LessonError(
            f"{where}: give only one of select and show, because both open the same drawer"
        )


def _question(part: _Part, script: Script, guess: _Guess, where: str) -> QuestionSection:
    if list(guess.bounds) != sorted(set(guess.bounds)):
        raise LessonError(f"{where}: bounds must ascend, such as [0.1, 0.5, 1]")
    quantity = _quantity(guess.measure, where)
    return QuestionSection(part.title, part.before, script, quantity, guess.bounds, part.after)


def _exercise(part: _Part, script: Script, task: _Task, where: str) -> ExerciseSection:
    if task.calculator:
        check_one_of(CALCULATORS, task.calculator, f"{where}: calculator is", LessonError)
    if not task.calculator and script.picture:
        raise LessonError(
            f"{where}: an exercise without a calculator uses the board, so it cannot show another "
            "picture"
        )
    goals = tuple(
        _goal(goal, task.calculator, f"{where}, goal {number}")
        for number, goal in enumerate(task.goals, 1)
    )
    return ExerciseSection(part.title, part.before, script, task.calculator, goals, part.after)


def _goal(goal: _Goal, calculator: str, where: str) -> Goal:
    low, high = goal.at_least, goal.at_most
    if low is None and high is None:
        raise LessonError(f"{where}: a goal needs at_least or at_most")
    if low is not None and high is not None and low > high:
        raise LessonError(f"{where}: at_least is {low:g}, more than at_most, {high:g}")
    if calculator:
        names = CALCULATORS[calculator].names
        if goal.measure not in names or goal.relative:
            raise LessonError(
                f"{where}: the measure of a calculator must be one of: {', '.join(names)}, and not "
                "relative"
            )
        return Goal(goal.measure, low, high)
    quantity = _quantity(goal.measure, where)
    if quantity.part != "run" or quantity.over:
        raise LessonError(f"{where}: a goal on the board must be about the board's run")
    return Goal(quantity, low, high, goal.relative)


def _check_order(sections: tuple[Section, ...]) -> None:
    def count(kind: type) -> int:
        return sum(isinstance(section, kind) for section in sections)

    steps = count(StepSection)
    if steps not in STEPS:
        raise LessonError(
            f"it has {counted(steps, 'step')}; a lesson has {STEPS[0]} to {STEPS[-1]}"
        )
    for kind, name in ((QuestionSection, "predict"), (ExerciseSection, "exercise")):
        if count(kind) != 1:
            raise LessonError(
                f"there are {counted(count(kind), 'section')} with a script {name!r}; a lesson has "
                "one"
            )
    readings = [isinstance(section, ReadingSection) for section in sections]
    if sum(readings) != 1 or not readings[-1]:
        raise LessonError("only the last section has no script: it names the code and the papers")


def sources_of(lesson: Lesson) -> set[Source]:
    """The sources that the numbers and pictures of a lesson need."""
    texts, found = [lesson.introduction], set[Source]()
    for section in lesson.sections:
        texts += [section.text, getattr(section, "explanation", "")]
        if not isinstance(section, ReadingSection):
            name = section.script.picture
            found.add(PICTURES[name].source if name else "run")
    quantities = [parse(name) for text in texts for name in numbers_in(text)]
    for quantity in (*quantities, lesson.question.quantity):
        found |= {PARTS[part][0] for part in (quantity.part, quantity.over) if part}
    return found


FOLDER: Final = ASSETS / "lessons"
# In teaching order.
ORDER: Final = (
    "tokens",
    "forks",
    "kv-cache",
    "sharing",
    "growth",
    "paging",
    "speculation",
    "batching",
    "quantization",
    "answers",
)


@lru_cache(maxsize=1)
def lessons() -> tuple[Lesson, ...]:
    """All bundled lessons."""
    return tuple(load(FOLDER / f"{name}.md") for name in ORDER)


def named(lesson_id: str) -> Lesson:
    """The lesson with this id; LessonError if there is none."""
    lesson = next((lesson for lesson in lessons() if lesson.id == lesson_id), None)
    if lesson is None:
        raise LessonError(
            f"there is no lesson {quoted(lesson_id)}; choose one of: {', '.join(ORDER)}; or give "
            "the path of a lesson file, which ends in .md"
        )
    return lesson
