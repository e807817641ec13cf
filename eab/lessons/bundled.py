"""The lessons that are bundled with the project."""

from functools import lru_cache
from typing import Final

from eab.assets import ASSETS
from eab.errors import LessonError
from eab.formatting import quoted
from eab.lessons.lesson import Lesson
from eab.lessons.lesson_files import load

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
