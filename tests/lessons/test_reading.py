"""Lesson files: valid ones are read, and all others are refused with an explanation."""

import re
import string
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lesson_sources import SMALL
from places import ROOT

from eab.errors import MAX_MESSAGE, LessonError
from eab.lessons.lesson import (
    ExerciseSection,
    Goal,
    QuestionSection,
    ReadingSection,
    Script,
    StepSection,
)
from eab.lessons.lesson_files import FOLDER, ORDER, lessons, loads, with_numbers
from eab.lessons.measures import LessonQuantity


def test_a_small_lesson_is_read_as_written() -> None:
    lesson = loads(SMALL.encode(), "small")
    assert (lesson.id, lesson.title) == ("small", "Small")
    assert (lesson.run, lesson.page) == ("coin.eab", "explore")
    kinds = [type(section) for section in lesson.sections]
    assert kinds == [StepSection, QuestionSection, StepSection, ExerciseSection, ReadingSection]
    one, guess, two, do, _ = lesson.sections
    assert one == StepSection("One", "Look.", Script(cursor="first fork"))
    assert (guess.quantity, guess.bounds) == (LessonQuantity("forks"), (1.0, 3.0))
    assert guess.explanation == "{{forks}} forks."
    assert two.script == Script(select=(0, 0), threshold=0.4)
    assert do.goals == (Goal(LessonQuantity("forks"), None, 0.0),)
    assert not lesson.covers(0, False)
    assert lesson.covers(2, False)
    assert not lesson.covers(2, True)


def test_a_bound_belongs_to_the_range_above_it() -> None:
    question = loads(SMALL.encode(), "small").question
    assert [question.range_of(value) for value in (0, 0.99, 1, 2, 3, 100)] == [0, 0, 1, 1, 2, 2]


def test_all_ten_lessons_of_the_project_are_listed_in_order() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == set(ORDER)
    assert [one.id for one in lessons()] == list(ORDER)
    assert len(lessons()) == 10


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_refused_with_a_short_message(data: bytes) -> None:
    with pytest.raises(LessonError) as refused:
        loads(data, "small")
    assert len(str(refused.value)) <= MAX_MESSAGE


LINES = SMALL.splitlines(keepends=True)
OTHER_LINES = st.sampled_from(["", *LINES]) | st.text(string.printable, max_size=30).map(
    "{}\n".format
)
CHANGED_LINES = st.tuples(st.integers(0, len(LINES) - 1), OTHER_LINES)


@given(st.lists(CHANGED_LINES, min_size=1, max_size=4))
def test_a_damaged_lesson_is_read_or_refused_with_a_reason(changes: list[tuple[int, str]]) -> None:
    lines = [*LINES]
    for number, line in changes:
        lines[number] = line
    with suppress(LessonError):
        lesson = loads("".join(lines).encode(), "small")
        assert lesson.question.bounds
        assert lesson.exercise.goals


@given(st.text(max_size=40).filter(lambda text: "{{" not in text and "}}" not in text))
@example("{")
def test_numbers_replace_their_names_and_nothing_else_changes(text: str) -> None:
    shown = with_numbers(f"{text}{{{{forks}}}}{text}", {"forks": r"\1 7"})
    assert shown == f"{text}\\1 7{text}"


def test_the_example_lesson_in_the_documentation_is_valid() -> None:
    page = (ROOT / "docs" / "lessons.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^`{5}markdown\n(.*?)^`{5}", page, flags=re.DOTALL | re.MULTILINE)
    assert loads(example.encode(), "example").title == "A coin"
