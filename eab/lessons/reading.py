"""Read a lesson file: TOML at the top, Markdown sections, and in each a script of TOML.

A lesson may come from anybody: what is not allowed is refused with a message that
names its section. `docs/lessons.md` describes the format.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, cast, get_args

from eab.board.guide import Drawer
from eab.config import AUTO, AllocationStep
from eab.errors import LessonError
from eab.formatting import counted, quoted
from eab.lessons.calculators import CALCULATORS
from eab.lessons.lesson import (
    Exercise,
    Goal,
    Lesson,
    NamedPlace,
    Place,
    Question,
    Reading,
    Script,
    Section,
    Step,
)
from eab.lessons.measures import parse
from eab.lessons.pictures import PICTURES
from eab.lessons.table import Table

MAX_BYTES: Final = 64 * 1024
MAX_SECTIONS: Final = 12
MAX_LINE: Final = 120  # characters of a title
MAX_SUMMARY: Final = 300
MAX_STEP: Final = 1_000_000
MAX_VALUE: Final = 1e15
STEPS: Final = range(2, 6)
BOUNDS: Final = range(1, 6)
GOALS: Final = range(1, 6)
PAGES: Final = ("explore", "compare", "memory", "bmc", "speculative", "batching", "quantization")
_FRONT: Final = re.compile(r"\A\+\+\+\n(?P<toml>.*?)\n\+\+\+\n(?P<body>.*)\Z", re.DOTALL)
_HEADING: Final = re.compile(r"^## +(.+)$", re.MULTILINE)
_BLOCK: Final = re.compile(r"^```(step|predict|exercise)\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
_NUMBER: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_HTML: Final = re.compile(r"<[a-zA-Z/!?]")
_PICTURE: Final = re.compile(r"!\[")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")


class _Part(NamedTuple):
    """A section of the file: its title, its words around the script, and the script."""

    title: str
    before: str
    kind: str
    script: str
    after: str


def load(path: Path) -> Lesson:
    """The lesson in this file; its name without the ending is the lesson's id.

    Raises:
        LessonError: It cannot be read, or it breaks a rule.
    """
    try:
        return loads(path.read_bytes(), path.stem)
    except OSError as error:
        raise LessonError(f"the lesson {path.name} cannot be read: {error}") from error


def loads(data: bytes, lesson_id: str) -> Lesson:
    """The lesson in these bytes.

    Args:
        data: The file.
        lesson_id: Names it in links.

    Raises:
        LessonError: It breaks a rule; the message names the section.
    """
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
    table = Table(_toml(front["toml"], "the top of the file"), "the top of the file")
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
    lesson = Lesson(
        lesson_id,
        title=_words(table.text("title", MAX_LINE), "the title"),
        summary=_words(table.text("summary", MAX_SUMMARY), "the summary"),
        run=table.text("run", MAX_LINE),
        page=table.choice("page", PAGES, "explore"),
        introduction=introduction,
        sections=sections,
    )
    table.finish()
    return lesson


def numbers_in(text: str) -> list[str]:
    """The quantities that a text names in double braces."""
    return [found.strip() for found in _NUMBER.findall(text)]


def with_numbers(text: str, values: Mapping[str, str]) -> str:
    """The text with the value of each quantity in its place.

    Args:
        text: Markdown with quantities in double braces.
        values: What each of `numbers_in(text)` is, as Markdown.
    """
    return _NUMBER.sub(lambda found: values[found[1].strip()], text)


def _decoded(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise LessonError(f"the lesson has {len(data):,} bytes; it can have at most {MAX_BYTES:,}")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise LessonError(
            f"the lesson is not UTF-8 text ({error.reason}); save it as UTF-8"
        ) from error
    if found := _CONTROL.search(text):
        raise LessonError(f"the lesson contains the control character {found[0]!r}; remove it")
    return text if text.endswith("\n") else f"{text}\n"


def _toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise LessonError(f"{where} is not valid TOML: {error}") from error


def _words(text: str, where: str) -> str:
    """Markdown of a lesson: no HTML, no pictures from elsewhere, only known quantities."""
    if _HTML.search(text):
        raise LessonError(f"{where} contains HTML; only Markdown is allowed. Write &lt; for <")
    if _PICTURE.search(text):
        raise LessonError(f"{where} contains a picture, which lessons cannot load; remove it")
    for name in numbers_in(text):
        try:
            parse(name)
        except LessonError as error:
            raise LessonError(f"{where}: {error}") from error
    return text.strip()


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
    (found,) = blocks
    before, after = body[: found.start()], body[found.end() :]
    return _Part(title, _words(before, where), found[1], found[2], _words(after, where))


def _section(part: _Part) -> Section:
    where = f"section {quoted(part.title)}"
    if not part.kind:
        if not part.before:
            raise LessonError(f"{where} is empty")
        return Reading(part.title, part.before)
    table = Table(_toml(part.script, f"the script of {where}"), where)
    script = _script(table)
    if not part.before:
        raise LessonError(f"{where} needs words before its script")
    section: Section
    match part.kind:
        case "step":
            text = "\n\n".join(filter(None, (part.before, part.after)))
            section = Step(part.title, text, script)
        case "predict":
            section = _question(part, script, table)
        case _:
            section = _exercise(part, script, table)
    table.finish()
    return section


def _script(table: Table) -> Script:
    if table.has("picture"):
        return Script(picture=table.choice("picture", tuple(PICTURES)))
    if table.has("select") and table.has("show"):
        raise LessonError(
            f"{table.where}: give only one of select and show, because both open the same drawer"
        )
    shown: Any = table.choice("show", get_args(Drawer)) if table.has("show") else None
    return Script(
        cursor=_place(table, "cursor"),
        select=_select(table),
        show=shown,
        threshold=table.number("threshold", 0, 20) if table.has("threshold") else None,
        r=_growth_step(table),
    )


def _place(table: Table, key: str) -> Place | None:
    if not table.has(key):
        return None
    if isinstance(table.values[key], str):
        return cast(NamedPlace, table.choice(key, get_args(NamedPlace)))
    return table.whole(key, 0, MAX_STEP)


def _select(table: Table) -> Place | tuple[int, int] | None:
    if isinstance(table.values.get("select"), list):
        path, index = (int(one) for one in table.numbers("select", range(2, 3), 0, MAX_STEP))
        return path, index
    return _place(table, "select")


def _growth_step(table: Table) -> AllocationStep | None:
    if not table.has("r"):
        return None
    if table.values["r"] == AUTO:
        table.text("r", MAX_LINE)
        return AUTO
    return table.whole("r", 1, MAX_STEP)


def _question(part: _Part, script: Script, table: Table) -> Question:
    where = f"section {quoted(part.title)}"
    quantity = table.refused_in_words(lambda: parse(table.text("measure", MAX_LINE)))
    bounds = table.numbers("bounds", BOUNDS, 0, MAX_VALUE)
    if list(bounds) != sorted(set(bounds)):
        raise LessonError(f"{where}: bounds must ascend, such as [0.1, 0.5, 1]")
    if not part.after:
        raise LessonError(f"{where} needs an explanation after its script")
    return Question(part.title, part.before, script, quantity, bounds, part.after)


def _exercise(part: _Part, script: Script, table: Table) -> Exercise:
    calculator = table.choice("calculator", tuple(CALCULATORS)) if table.has("calculator") else ""
    goals = tuple(_goal(one, calculator) for one in table.tables("goals", GOALS))
    if not calculator and script.picture:
        raise LessonError(
            f"section {quoted(part.title)}: an exercise without a calculator uses the board, so "
            "it cannot show another picture"
        )
    if not part.after:
        raise LessonError(f"section {quoted(part.title)} needs an explanation after its script")
    return Exercise(part.title, part.before, script, calculator, goals, part.after)


def _goal(table: Table, calculator: str) -> Goal:
    if calculator:
        of = table.choice("measure", CALCULATORS[calculator].names)
        goal = Goal(of, _limit(table, "at_least"), _limit(table, "at_most"))
    else:
        quantity = table.refused_in_words(lambda: parse(table.text("measure", MAX_LINE)))
        if quantity.part != "run" or quantity.over:
            raise LessonError(f"{table.where}: a goal on the board must be about the board's run")
        relative = table.truth("relative") if table.has("relative") else False
        low, high = _limit(table, "at_least"), _limit(table, "at_most")
        goal = Goal(quantity, low, high, relative)
    low, high = goal.at_least, goal.at_most
    if low is None and high is None:
        raise LessonError(f"{table.where}: a goal needs at_least or at_most")
    if low is not None and high is not None and low > high:
        raise LessonError(f"{table.where}: at_least is {low:g}, more than at_most, {high:g}")
    table.finish()
    return goal


def _limit(table: Table, key: str) -> float | None:
    return table.number(key, 0, MAX_VALUE) if table.has(key) else None


def _check_order(sections: tuple[Section, ...]) -> None:
    def count(kind: type) -> int:
        return sum(isinstance(one, kind) for one in sections)

    if count(Step) not in STEPS:
        raise LessonError(
            f"there are {counted(count(Step), 'step')}; a lesson has {STEPS[0]} to {STEPS[-1]}"
        )
    for kind, name in ((Question, "predict"), (Exercise, "exercise")):
        if count(kind) != 1:
            raise LessonError(
                f"there are {counted(count(kind), 'section')} with a script {name!r}; a lesson has "
                "one"
            )
    readings = [isinstance(one, Reading) for one in sections]
    if sum(readings) != 1 or not readings[-1]:
        raise LessonError("only the last section has no script: it names the code and the papers")
