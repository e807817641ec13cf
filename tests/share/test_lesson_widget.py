"""Lessons in a notebook, without a browser: Python presses the buttons."""

from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pytest
from lesson_answers import ANSWERS
from lesson_sources import SMALL, example_events

import eab
from eab.errors import LessonError
from eab.lessons.lesson import Lesson, QuestionSection, ReadingSection
from eab.lessons.lesson_files import lessons
from eab.lessons.measures import written
from eab.run import fold
from eab.share.lesson_widget import IN_THE_APP, NOT_YET, LessonWidget

ALL = {one.id: one for one in lessons()}


def found(root: Any, kind: type) -> list[Any]:
    """All visible widgets of this kind, in order."""
    if getattr(root.layout, "display", None) == "none":
        return []
    below = [one for child in getattr(root, "children", ()) for one in found(child, kind)]
    return [root, *below] if isinstance(root, kind) else below


def press(shown: LessonWidget, words: str) -> None:
    next(one for one in found(shown, widgets.Button) if one.description == words).click()


def html(shown: LessonWidget) -> str:
    return str(found(shown, widgets.HTML)[0].value)


@pytest.mark.parametrize("lesson", lessons(), ids=list(ALL))
def test_every_lesson_can_be_completed_and_gives_the_recorded_answer(lesson: Lesson) -> None:
    shown = eab.show_lesson(lesson.id)
    assert lesson.title in html(shown)
    for section in lesson.sections:
        press(shown, "Next")
        assert section.title in shown.words()
        assert "{{" not in shown.words()
        if isinstance(section, QuestionSection):
            covered = [one.value for one in found(shown, widgets.Label)]
            assert NOT_YET in covered
            found(shown, widgets.RadioButtons)[0].index = 0
            press(shown, "Show me")
            answer = written(ANSWERS[lesson.id](example_events(lesson)), section.quantity.unit)
            assert answer in shown.words()
            assert not found(shown, widgets.RadioButtons)
        if not isinstance(section, ReadingSection):
            picture = shown.children[-1].children[0]
            assert (picture is shown.board) == (section.script.picture == "")
    assert found(shown, widgets.Button)[-1].disabled


def test_the_steps_move_the_board_and_never_replace_it() -> None:
    shown = eab.show_lesson("forks")
    for _ in range(2):
        press(shown, "Next")
    board = shown.board
    assert board.message["guide"]["token"] == [1, 0]
    press(shown, "Next")
    assert board.message["guide"]["drawer"] == "tables"
    assert "asked" not in board.message
    press(shown, "Next")
    assert shown.board is board
    assert board.message["asked"] == {"threshold": 2.4, "r": None}
    press(shown, "Back")
    assert "asked" not in board.message


def test_a_wrong_guess_is_corrected_and_an_exercise_points_to_the_app() -> None:
    shown = eab.show_lesson("forks")
    press(shown, "Next")
    press(shown, "Show me")  # reveals nothing without a choice
    assert "It is" not in shown.words()
    found(shown, widgets.RadioButtons)[0].index = 3
    press(shown, "Show me")
    assert "You guessed 50 or more. It is 7." in shown.words()
    for _ in range(4):
        press(shown, "Next")
    assert IN_THE_APP in shown.words()


def test_a_lesson_file_can_be_shown_with_the_users_own_run(tmp_path: Path) -> None:
    file = tmp_path / "small.md"
    file.write_text(SMALL.replace("little", "<b>little</b>".replace("<", "&lt;")))
    events = example_events(ALL["answers"])
    shown = eab.show_lesson(file, events)
    press(shown, "Next")
    press(shown, "Next")
    found(shown, widgets.RadioButtons)[0].index = 0
    press(shown, "Show me")
    forks = sum(path.fork_entropy is not None for path in fold(events).paths)
    assert f"{forks} forks." in shown.words()


def test_an_unknown_lesson_is_explained_with_the_available_ones(tmp_path: Path) -> None:
    with pytest.raises(LessonError, match=r"no lesson .*fork.*choose one of: tokens, forks"):
        eab.show_lesson("fork")
    with pytest.raises(LessonError, match=r"missing\.md cannot be read"):
        eab.show_lesson(tmp_path / "missing.md")


def test_without_widgets_the_text_of_the_lesson_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    displayed: list[Any] = []
    monkeypatch.setattr("eab.share.widget.display", lambda data, **_: displayed.append(data))
    lesson = eab.show_lesson("tokens")
    lesson._ipython_display_()
    still, live = displayed
    assert [*live] == ["application/vnd.jupyter.widget-view+json"]
    assert still["text/plain"].startswith("### What the model says")
    assert "<h3>What the model says" in still["text/html"]
    assert f"<style>{lesson.hides_still}</style>" in html(lesson)
