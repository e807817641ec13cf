"""The position of one browser tab in the lessons: lesson, stage and data; and the lessons that can
be opened: the bundled ones, and those uploaded to this server.

An uploaded lesson stays until the server ends, or until MAX_UPLOADED others have been uploaded
after it, so that a lecturer can share its link.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import streamlit as st

from app.state import tab, what_if
from app.state.session import notify
from app.state.slot import BATCHING, CACHES, DRAFT_LENGTHS, FORMATS, Entry, Slot, note_in_url
from app.state.tab import Details, OpenRun
from eab.errors import LessonError
from eab.formatting import quoted
from eab.lessons import bundled_runs
from eab.lessons.lesson import Lesson, ReadingSection
from eab.lessons.lesson_files import lessons, loads, sources_of
from eab.lessons.measures import Source, Sources, bundled_sources
from eab.run import RunState, fold_prefix

MAX_UPLOADED: Final = 100
_LOCK: Final = threading.Lock()
_UPLOADED: Final[OrderedDict[str, Lesson]] = OrderedDict()


def add_uploaded(data: bytes) -> Lesson:
    """Keep an uploaded lesson under an id of its bytes. Raises LessonError if it is invalid."""
    lesson = loads(data, f"own-{hashlib.sha256(data).hexdigest()[:16]}")
    bundled_runs.named(lesson.run)
    with _LOCK:
        _UPLOADED[lesson.id] = lesson
        _UPLOADED.move_to_end(lesson.id)
        while len(_UPLOADED) > MAX_UPLOADED:
            _UPLOADED.popitem(last=False)
    return lesson


def lesson_with_id(lesson_id: str) -> Lesson:
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


BOARD: Final = "lesson_what_if"  # key of what was asked for on the lesson's board
OWN: Final = "lesson_own"  # key of the switch between the example and this tab's own data
_LESSON, _STAGE, _ENTERED = "lesson_id", "lesson_stage", "lesson_entered"
_GUESSES, _GUESSED, _SOLVED = "lesson_guesses", "lesson_guessed", "lesson_solved"
_DATA, _GUEST = "lesson_data", "lesson_guest"
_NOTED: Final = "lesson_noted"  # the lesson and stage that this tab last wrote into its URL
_SLOTS: Final[dict[str, Slot[Any]]] = {
    "caches": CACHES,
    "draft lengths": DRAFT_LENGTHS,
    "batching": BATCHING,
    "formats": FORMATS,
}


@dataclass(frozen=True)
class LessonData:
    """What a lesson shows, and what its numbers are computed from."""

    key: str  # for the guesses, the board and comparisons
    run: OpenRun = field(compare=False)  # shown on the board
    sources: Sources = field(compare=False)


def lesson() -> Lesson:
    """The lesson of this tab; in a new tab, the one of the link, or else the first one."""
    st.session_state.setdefault(_LESSON, lessons()[0].id)
    named = _in_url()
    if named[0] and named != st.session_state.get(_NOTED):  # a new tab, or Back in the browser
        st.session_state[_NOTED] = named
        try:
            choose(lesson_with_id(named[0]), named[1])
        except LessonError as error:
            notify(str(error))
    try:
        return lesson_with_id(st.session_state[_LESSON])
    except LessonError as error:  # the server has forgotten it
        notify(str(error))
        choose(lessons()[0])
        return lessons()[0]


def choose(chosen: Lesson, stage: int = 0) -> None:
    """Open a lesson, by default at its introduction."""
    st.session_state[_LESSON] = chosen.id
    st.session_state[_STAGE] = min(stage, len(chosen.sections))


def stage() -> int:
    """The stage: 0 is the introduction of the lesson, 1 its first section."""
    return cast(int, st.session_state.get(_STAGE, 0))


def go_to(number: int) -> None:
    """Go to a stage of the lesson."""
    st.session_state[_STAGE] = min(max(0, number), len(lesson().sections))


def own_exists(chosen: Lesson) -> bool:
    """Whether anything that the lesson draws on was made in this tab."""
    return any(_is_own(source) for source in sources_of(chosen))


def data_of(chosen: Lesson) -> LessonData:
    """The example, or this tab's own data if the user chose it. In a class, the data of the
    lecturer's lesson, until the user chooses or leaves.
    """
    current = _guest(chosen) or _data(chosen)
    st.session_state[_DATA] = current
    return current


def uses_lecturers_data(chosen: Lesson) -> bool:
    """Whether the class gives the lesson other data than this tab would use outside the class."""
    guest = _guest(chosen)
    return guest is not None and guest != _data(chosen)


def uses_own(chosen: Lesson) -> bool:
    """Whether the user has chosen this tab's own data, and there is some."""
    return bool(st.session_state.get(OWN)) and own_exists(chosen)


def shown_data() -> LessonData | None:
    """The data of the lesson when it was last drawn in this tab."""
    return cast(LessonData | None, st.session_state.get(_DATA))


def use_data(chosen: Lesson, guest: LessonData | None) -> None:
    """Show this lesson with another tab's data; None: with this tab's data."""
    st.session_state[_GUEST] = chosen.id, guest


def use_own_data() -> None:
    """Show the lessons with this tab's data."""
    st.session_state.pop(_GUEST, None)


def _guest(chosen: Lesson) -> LessonData | None:
    lesson_id, guest = st.session_state.get(_GUEST, ("", None))
    return cast(LessonData | None, guest) if lesson_id == chosen.id else None


def _data(chosen: Lesson) -> LessonData:
    own = uses_own(chosen)
    run = _own_run() if own and _is_own("run") else _example(chosen)
    assert run.run is not None
    if not own:
        return LessonData(run.key, run, bundled_sources(run.run))
    shown = {name: slot.displayed() for name, slot in _SLOTS.items()}
    keys = [run.key, *(entry.key for entry in shown.values())]
    return LessonData(" ".join(keys), run, _sources(run.run, shown))


def enter(chosen: Lesson, run: OpenRun, view: str) -> None:
    """Show the run with the settings of this stage, once per `view`; the user may change them."""
    note_in_url({"lesson": chosen.id, "stage": str(stage())})
    st.session_state[_NOTED] = _in_url()
    if st.session_state.get(_ENTERED) == view:
        return
    st.session_state[_ENTERED] = view
    section = chosen.sections[stage() - 1] if stage() else chosen.sections[0]
    if stage() == 0 or isinstance(section, ReadingSection):
        threshold, r = None, None
    else:
        threshold, r = section.script.threshold, section.script.r
    what_if.ask(run, run.key, threshold, r, BOARD)


def guess(chosen: Lesson, key: str) -> int | None:
    """The range that was guessed; None before the guess."""
    guesses: dict[tuple[str, str], int] = st.session_state.setdefault(_GUESSES, {})
    return guesses.get((chosen.id, key))


def note_guess(chosen: Lesson, key: str, choice: int) -> None:
    """Remember the guessed range."""
    st.session_state.setdefault(_GUESSES, {})[chosen.id, key] = choice


def guessed() -> dict[str, bool]:
    """The lessons whose question was answered in this tab, and whether the guess was right."""
    return cast(dict[str, bool], st.session_state.setdefault(_GUESSED, {}))


def solved() -> set[str]:
    """The ids of the lessons whose exercise was solved in this tab."""
    return cast(set[str], st.session_state.setdefault(_SOLVED, set()))


def _in_url() -> tuple[str, int]:
    text = st.query_params.get("stage", "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 3 else 0
    return st.query_params.get("lesson", ""), number


def _is_own(source: Source) -> bool:
    if source == "run":
        run = tab.displayed()
        of_project = "example" in run.details.link_ids
        return not of_project and not run.active and run.run is not None and bool(run.run.steps)
    return _SLOTS[source].displayed().live is not None


def _own_run() -> OpenRun:
    run = tab.displayed()
    return replace(run, key=f"lesson-{run.key}", live=None, guest=False)


def _example(chosen: Lesson) -> OpenRun:
    recording = bundled_runs.named(chosen.run)
    events = bundled_runs.events_of(recording)
    details = Details(recording.title, recording.shows, events, {"example": recording.file})
    return OpenRun(f"lesson-{recording.file}", fold_prefix(events), details=details)


def _sources(run: RunState, shown: Mapping[str, Entry[Any]]) -> Sources:
    return Sources(
        run,
        lambda: shown["caches"].state,
        lambda: shown["draft lengths"].state,
        lambda: shown["batching"].state,
        lambda: shown["formats"].state,
    )
