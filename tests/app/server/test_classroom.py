"""A class without a page: who may do what, what everybody sees, and when the class ends."""

import csv
import io
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.server import classroom
from app.server.class_questions import MOST_OPTIONS, ClassQuestion
from app.server.classroom import (
    CODE_SIGNS,
    ENDS_AFTER,
    ENDS_EMPTY_AFTER,
    Classes,
    Classroom,
    KeptClasses,
)
from eab.errors import ClassError

COIN = ClassQuestion("Which token comes next?", (" heads", " tails"), (0.75, 0.25), 0)


class Door:
    """A class with a clock that tests set. Records who has left and who was woken."""

    def __init__(self) -> None:
        self.time = 0.0
        self.gone: set[str] = set()
        self.woken: Counter[str] = Counter()
        self.room = Classroom(now=lambda: self.time, connected=lambda one: one not in self.gone)

    def wake(self, name: str) -> Callable[[], None]:
        return lambda: self.woken.update([name])

    def enter(self, *names: str) -> None:
        """Let these tabs enter: "lecturer" leads the class, any other name joins it."""
        for name in names:
            if name == "lecturer":
                self.room.lead(name, self.wake(name))
            else:
                self.room.join(name, self.wake(name))


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.fixture
def room(door: Door) -> Classroom:
    return door.room


def test_followers_see_what_is_shown_and_are_woken_once_per_change(
    door: Door, room: Classroom
) -> None:
    room.lead("lecturer", door.wake("lecturer"))
    assert room.join("ada", door.wake("ada")).shown is None
    door.woken.clear()
    room.show("step 3")
    room.show("step 3")
    assert door.woken["ada"] == 1
    assert room.state.shown == "step 3"
    late = room.join("bob", door.wake("bob"))
    assert (late.shown, late.following) == ("step 3", 2)
    room.leave("ada")
    door.woken.clear()
    room.show("step 4")
    assert (door.woken["ada"], door.woken["bob"], room.state.following) == (0, 1, 1)


def test_answers_are_accepted_until_the_reveal(door: Door, room: Classroom) -> None:
    door.enter("ada", "bob")
    with pytest.raises(ClassError, match="no longer"):
        room.answer("ada", 1, 0)
    room.ask(COIN)
    room.answer("ada", 1, 1)
    assert room.answer_of("ada", 1) == 1
    assert room.answer_of("carl", 1) is None
    with pytest.raises(ClassError, match="no option"):
        room.answer("ada", 1, 2)
    with pytest.raises(ClassError, match="join the class"):
        room.answer("carl", 1, 0)
    room.reveal()
    with pytest.raises(ClassError, match="no longer"):
        room.answer("bob", 1, 1)
    room.ask(ClassQuestion("Will the text fork here?", ("Yes", "No")))
    with pytest.raises(ClassError, match="no longer"):
        room.answer("bob", 1, 1)
    asked = room.state.question
    assert (asked.number, asked.counts, asked.revealed) == (2, (0, 0), False)


def test_answers_wake_only_the_lecturer(door: Door, room: Classroom) -> None:
    door.enter("lecturer", "ada", "bob")
    room.ask(COIN)
    door.woken.clear()
    room.answer("ada", 1, 0)
    room.answer("ada", 1, 0)
    assert door.woken == {"lecturer": 1}


def test_the_csv_file_has_every_question_and_no_formula(door: Door, room: Classroom) -> None:
    room.join("ada", door.wake("ada"))
    room.ask(COIN)
    room.answer("ada", 1, 1)
    room.reveal()
    room.ask(ClassQuestion("=HYPERLINK(1)", ("+1", 'a, "b"')))
    rows = list(csv.reader(io.StringIO(room.csv())))
    assert rows[1:] == [
        ["1", COIN.text, "", " heads", "0", "0.750000", "true", "true"],
        ["1", COIN.text, "", " tails", "1", "0.250000", "false", "true"],
        ["2", "'=HYPERLINK(1)", "", "'+1", "0", "", "", "false"],
        ["2", "'=HYPERLINK(1)", "", 'a, "b"', "0", "", "", "false"],
    ]


def test_a_class_ends_two_hours_after_the_lecturer_left(door: Door, room: Classroom) -> None:
    door.enter("lecturer", "ada")
    door.time = 10 * ENDS_AFTER
    assert room.state.lecturer_here
    door.gone.add("lecturer")
    assert not room.state.lecturer_here
    assert door.woken["ada"] > 0
    door.time += ENDS_AFTER
    assert not room.state.ended
    door.time += 1
    assert room.state.ended
    with pytest.raises(ClassError, match="has ended"):
        room.join("bob", door.wake("bob"))
    with pytest.raises(ClassError, match="has ended"):
        room.show("late")


def test_a_lecturer_can_continue_after_a_reload(door: Door, room: Classroom) -> None:
    room.lead("first tab", door.wake("first tab"))
    room.show("step 3")
    door.gone.add("first tab")
    assert not room.state.lecturer_here
    again = room.lead("second tab", door.wake("second tab"))
    assert (again.shown, again.lecturer_here) == ("step 3", True)


def test_the_numbers_of_students_and_questions_of_a_class_are_limited(
    door: Door, room: Classroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classroom, "MAX_MEMBERS", 2)
    monkeypatch.setattr(classroom, "MAX_QUESTIONS", 1)
    door.enter("ada", "bob", "ada")
    with pytest.raises(ClassError, match="2 students follow this class"):
        room.join("carl", door.wake("carl"))
    door.gone.add("bob")
    assert room.join("carl", door.wake("carl")).following == 2
    room.ask(COIN)
    with pytest.raises(ClassError, match="1 questions"):
        room.ask(COIN)


def test_classes_are_found_by_code_and_key_until_they_end() -> None:
    classes = Classes(2, 2, connected=lambda _: True)
    one, other = classes.start("ada"), classes.start("ada")
    with pytest.raises(ClassError, match="2 classes"):
        classes.start("bob")
    assert classes.by_code(f" {one.code.lower()} ") is one
    assert classes.by_key(other.key) is other
    assert set(one.code) <= set(CODE_SIGNS)
    for wrong in ("", one.key, other.code[:-1]):
        with pytest.raises(ClassError, match="check the code"):
            classes.by_code(wrong)
    for wrong in ("", one.code):
        with pytest.raises(ClassError, match="has ended"):
            classes.by_key(wrong)
    one.end()
    with pytest.raises(ClassError, match="check the code"):
        classes.by_code(one.code)
    assert classes.start("ada") is not one, "there is room again"
    assert not Classes(0, 1, connected=lambda _: True).allowed


def test_classes_and_their_questions_survive_a_restart_of_the_server(tmp_path: Path) -> None:
    folder = tmp_path / "runs.classes"

    def restarted() -> Classes:
        return Classes(3, 2, connected=lambda _: True, kept=KeptClasses(folder))

    classes = restarted()
    room, other = classes.start("ada"), classes.start("ada")
    room.join("bob", lambda: None)
    room.ask(COIN)
    room.answer("bob", 1, 1)
    room.reveal()
    room.ask(COIN)
    room.answer("bob", 2, 0)
    other.end()
    assert folder.stat().st_mode & 0o077 == 0
    (folder / "damaged.class.json").write_text('{"owner": "a"}')
    without_questions = '{"owner": "a", "key": "k", "code": "Q", "is_open": true}'
    (folder / "Q.class.json").write_text(without_questions)

    again = restarted().by_key(room.key)
    assert (again.code, again.owner) == (room.code, "ada")
    assert again.csv().splitlines()[:3] == room.csv().splitlines()[:3]
    assert again.state.question is not None
    assert again.state.question.answers == 0, "the tabs are new, and answer again"
    again.join("bob in a new tab", lambda: None)
    again.answer("bob in a new tab", 2, 1)
    assert again.state.question.counts == (0, 1)
    with pytest.raises(ClassError):
        restarted().by_code(other.code)
    again.end()
    with pytest.raises(ClassError):
        restarted().by_key(room.key)
    assert {file.name for file in folder.iterdir()} == {"damaged.class.json", "Q.class.json"}


def test_a_class_that_cannot_be_written_to_disk_still_works(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    room = Classes(1, 1, lambda _: True, KeptClasses(tmp_path / "file")).start("ada")
    room.ask(COIN)
    assert room.state.question is not None


def test_the_number_of_classes_of_a_visitor_is_limited() -> None:
    classes = Classes(20, 2, connected=lambda _: True)
    first, _ = classes.start("ada"), classes.start("ada")
    with pytest.raises(ClassError, match="a visitor can have 2 classes at a time"):
        classes.start("ada")
    classes.start("bob")
    first.end()
    classes.start("ada")


def test_a_class_that_everybody_has_left_ends_after_ten_minutes(
    door: Door, room: Classroom
) -> None:
    never_entered = Classroom(now=lambda: door.time, connected=lambda _: True)
    door.enter("lecturer", "ada")
    door.gone.add("lecturer")
    door.time += 10 * ENDS_EMPTY_AFTER
    assert not room.state.ended, "ada waits for the lecturer"
    assert never_entered.state.ended
    door.gone.add("ada")
    door.time += ENDS_EMPTY_AFTER
    assert not room.state.ended
    door.time += 1
    assert room.state.ended


@given(st.text(st.characters() | st.sampled_from("\ud800\udc80\x00"), max_size=80))
def test_any_code_or_key_is_found_or_refused_with_a_short_message(text: str) -> None:
    classes = Classes(1, 1, connected=lambda _: True)
    classes.start("ada")
    for find in (classes.by_code, classes.by_key):
        with pytest.raises(ClassError) as refused:
            find(text)
        assert len(str(refused.value).encode("utf-8")) < 300


@given(
    st.lists(
        st.tuples(st.sampled_from("abcde"), st.integers(-1, MOST_OPTIONS), st.booleans()),
        max_size=40,
    ),
    st.integers(2, MOST_OPTIONS),
)
def test_only_the_last_answer_of_each_student_is_counted(
    answers: list[tuple[str, int, bool]], options: int
) -> None:
    door = Door()
    room = door.room
    room.ask(ClassQuestion("Which?", tuple(map(str, range(options)))))
    last: dict[str, int] = {}
    for name, option, joins in answers:
        if joins:
            room.join(name, door.wake(name))
        try:
            room.answer(name, 1, option)
        except ClassError:
            continue
        last[name] = option
    asked = room.state.question
    assert asked.counts == tuple(list(last.values()).count(one) for one in range(options))
    assert asked.answers == len(last)


def test_thirty_threads_can_answer_simultaneously(door: Door, room: Classroom) -> None:
    names = [str(number) for number in range(30)]
    for name in names:
        room.join(name, lambda: None)
    room.ask(COIN)
    threads = [
        threading.Thread(target=lambda one=name: [room.answer(one, 1, n % 2) for n in range(50)])
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asked = room.state.question
    assert asked.counts == (0, 30)
