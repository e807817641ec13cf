"""The lessons that can be opened: the bundled ones, and those uploaded to this server.

An uploaded lesson stays until the server ends, or until MOST others have been uploaded after it, so
that a lecturer can share its link.
"""

import hashlib
import threading
from collections import OrderedDict
from typing import Final

from eab.errors import LessonError
from eab.formatting import quoted
from eab.lessons import bundled_runs
from eab.lessons.lesson import Lesson
from eab.lessons.lesson_files import lessons, loads

MOST: Final = 100
_LOCK: Final = threading.Lock()
_UPLOADED: Final[OrderedDict[str, Lesson]] = OrderedDict()


def add(data: bytes) -> Lesson:
    """Keep an uploaded lesson under an id of its bytes. Raises LessonError if it is invalid."""
    lesson = loads(data, f"own-{hashlib.sha256(data).hexdigest()[:16]}")
    bundled_runs.named(lesson.run)
    with _LOCK:
        _UPLOADED[lesson.id] = lesson
        _UPLOADED.move_to_end(lesson.id)
        while len(_UPLOADED) > MOST:
            _UPLOADED.popitem(last=False)
    return lesson


def find(lesson_id: str) -> Lesson:
    """The lesson with this id. Raises LessonError if it is unknown or no longer kept."""
    with _LOCK:
        uploaded = _UPLOADED.get(lesson_id)
    lesson = uploaded or next((each for each in lessons() if each.id == lesson_id), None)
    if lesson is None:
        raise LessonError(
            f"there is no lesson {quoted(lesson_id)} on this server; upload its file again, or "
            "choose another lesson"
        )
    return lesson
