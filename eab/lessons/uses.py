"""What a lesson draws on."""

from collections.abc import Iterator

from eab.lessons.lesson import Exercise, Lesson, Question, Reading
from eab.lessons.measures import Quantity, parse
from eab.lessons.pictures import PICTURES
from eab.lessons.reading import numbers_in
from eab.lessons.sources import PARTS, Source


def uses(lesson: Lesson) -> set[Source]:
    """The sources of its numbers and pictures."""
    return {*_of_pictures(lesson), *_of_numbers(lesson)}


def _of_pictures(lesson: Lesson) -> Iterator[Source]:
    for section in lesson.sections:
        if not isinstance(section, Reading):
            name = section.script.picture
            yield PICTURES[name].source if name else "run"


def _of_numbers(lesson: Lesson) -> Iterator[Source]:
    for quantity in (*(parse(name) for name in _named(lesson)), lesson.question.quantity):
        yield from _parts(quantity)


def _parts(quantity: Quantity) -> Iterator[Source]:
    for part in filter(None, (quantity.part, quantity.over)):
        yield PARTS[part][0]


def _named(lesson: Lesson) -> Iterator[str]:
    yield from numbers_in(lesson.introduction)
    for section in lesson.sections:
        yield from numbers_in(section.text)
        if isinstance(section, Question | Exercise):
            yield from numbers_in(section.explanation)
