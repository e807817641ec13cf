"""The class that this browser tab leads or follows, and what passes between the two.

Each drawing collects what the lecturer shows (`View`). A follower's tab is led there through the
state that its pages draw from anyway: the tab's run, a board's what-if, the lesson.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

import streamlit as st

from app.server import rules
from app.server.class_questions import AskedQuestion
from app.server.classroom import Classes, Classroom, ClassState, KeptClasses
from app.server.store import store_path
from app.state import learning, tab, what_if
from app.state.learning import LessonData
from app.state.session import CLASS_SCOPE, connected, notify, of_this_fragment, owner, session_id
from app.state.slot import note_in_url
from app.state.tab import OpenRun
from app.state.what_if import WhatIfSettings
from eab.errors import EabError
from eab.run.events import LabelRule

CODE, KEY = "class", "lecture"  # URL parameters in the links of students and of the lecturer
LEARN: Final = "learn"
_MEMBERSHIP, _LOOK = "class_membership", "class_look"
_ENTERED: Final = "class_entered"
_TRIES: Final = 3  # drawings that a tab may need to reach what the lecturer shows

Role = Literal["lecturer", "student"]


@dataclass(frozen=True, slots=True)
class Look:
    """The position of the lecturer's board."""

    run: str
    cursor: int | None  # None: it stays at the newest step
    token: tuple[int, int] | None  # path and index


@dataclass(frozen=True, slots=True)
class View:
    """What the lecturer shows."""

    page: str  # as in its URL
    key: str  # of the run on Explore
    asked: WhatIfSettings | None  # the what-if on Explore
    labels: tuple[LabelRule, ...]  # of the run on Explore
    lesson: tuple[str, int] | None  # id and stage, on Learn
    data: LessonData | None
    lesson_asked: WhatIfSettings | None  # the what-if on the board of the lesson
    run: OpenRun = field(compare=False)  # views are compared by `key` instead
    look: Look | None = None

    @property
    def place(self) -> tuple[str, str, tuple[str, int] | None]:
        """The place in the app; a student who leaves it stops following."""
        return self.page, self.key, self.lesson


@dataclass
class Membership:
    """This tab's membership of a class."""

    room: Classroom
    role: Role
    following: bool = True  # the tab is led to what the lecturer shows, or last showed
    rounds: int = 1  # how often it has started to follow
    view: View | None = None  # where the tab was led last, without the look
    tries: int = 0  # drawings since then in which the tab was not there yet
    back_at: Look | None = None  # where the board of a lecturer who returned by the link starts

    def lead(self, look: Look) -> dict[str, Any]:
        """JSON values; see Lead in eab/board/static/types.d.ts."""
        at = {"run": look.run, "cursor": look.cursor, "token": look.token}
        return {"id": f"{self.rounds} {at}", **at}


@st.cache_resource(show_spinner=False)
def classes() -> Classes:
    """The classes of this process."""
    allowed = rules.current()
    store = store_path()
    kept = KeptClasses(None if store is None else store.with_suffix(".classes"))
    return Classes(allowed.max_classes, allowed.classes_per_visitor, connected, kept)


def membership() -> Membership | None:
    """The class of this tab; None if it is in none. A new tab enters by its link."""
    if _ENTERED not in st.session_state:
        st.session_state[_ENTERED] = True
        key, code = st.query_params.get(KEY, ""), st.query_params.get(CODE, "")
        try:
            if key:
                _enter(Membership(classes().by_key(key), "lecturer"))
            elif code:
                join(code)
        except EabError as error:
            notify(str(error))
    return cast(Membership | None, st.session_state.get(_MEMBERSHIP))


def start() -> None:
    """Start a class and lead it from this tab. Raises ClassError if there are too many already."""
    _enter(Membership(classes().start(owner()), "lecturer", following=False))


def join(code: str) -> None:
    """Follow the class with this code. Raises ClassError if there is none."""
    _enter(Membership(classes().by_code(code), "student"))


def leave() -> None:
    """Leave the class."""
    member = membership()
    if member is not None:
        member.room.leave(session_id())
    learning.use_own_data()
    del st.session_state[_MEMBERSHIP], st.session_state[CLASS_SCOPE]
    for name in (CODE, KEY):
        if name in st.query_params:
            del st.query_params[name]


def stop_following(member: Membership) -> None:
    """Stop following the lecturer; what is on the screen stays."""
    member.following = False
    member.room.leave(session_id())


def follow_again(member: Membership) -> None:
    """Follow the lecturer again."""
    member.following, member.view = True, None
    member.rounds += 1


def note_in_link(member: Membership) -> None:
    """Write into the URL what a reload needs to find the class."""
    lecturer = member.role == "lecturer"
    note_in_url({KEY: member.room.key} if lecturer else {CODE: member.room.code})


def attend(member: Membership) -> ClassState:
    """The class now; its changes redraw this fragment. Raises ClassError if it is over or full."""
    tab_id, wake = session_id(), of_this_fragment()
    if member.role == "lecturer":
        return member.room.lead(tab_id, wake)
    return member.room.join(tab_id, wake) if member.following else member.room.state


def look(member: Membership, reported: dict[str, Any]) -> None:
    """Show the class where the lecturer's board is, as the browser reports it."""
    seen = _look_of(reported)
    shown = cast(View | None, member.room.state.shown)
    if seen is None or seen == st.session_state.get(_LOOK):  # the last report repeats
        return
    if member.role == "lecturer" and shown is not None:
        if seen == member.back_at:
            member.back_at = None  # it is there, and is not sent there again by a new board
        st.session_state[_LOOK] = seen
        member.room.show(replace(shown, look=seen))


def publish(page: str) -> None:
    """Show the class what is on the lecturer's screen; do nothing in any other tab."""
    member = membership()
    if member is not None and member.role == "lecturer" and not member.following:
        view = _view(page)
        if not member.room.state.ended:
            member.room.show(replace(view, look=_own_look(view)))


def note_guess(member: Membership, asked: AskedQuestion) -> bool:
    """Once a lesson's question is revealed, note a student's answer, or the right one for the
    lecturer, as the guess; return whether to redraw. Students without an answer can still guess.
    """
    of, right = asked.question.lesson, asked.question.right
    alone = member.role == "student" and not member.following
    if alone or not asked.revealed or of is None or right is None:
        return False
    lesson, data = learning.lesson(), learning.shown_data()
    if data is None or (lesson.id, data.key) != of or learning.guess(lesson, data.key) is not None:
        return False
    is_student = member.role == "student"
    guess = member.room.answer_of(session_id(), asked.number) if is_student else right
    if guess is None:
        return False
    learning.note_guess(lesson, data.key, guess)
    return True


def follow_lecturer(member: Membership, view: View | None, page: str) -> str | None:
    """Lead this tab to what the lecturer shows; return the page to draw for that, or None."""
    if view is None:
        member.following = member.role == "student"
    if view is None or not member.following:
        return None
    here = _view(page)
    goal = replace(view, look=None)
    if member.view != goal:
        before, member.view, member.tries = member.view, goal, 0
        if before is not None and before.place == goal.place and before.labels != goal.labels:
            return goal.page  # this tab has the same run, which must be drawn again
    elif member.tries >= _TRIES:  # the tab has arrived before
        if here.place != goal.place:
            stop_following(member)
        return None
    if here == goal or member.tries == _TRIES - 1:
        member.tries = _TRIES
        if member.role == "lecturer":  # back where it was, the tab leads again
            member.following, member.back_at = False, view.look
        return None
    member.tries += 1
    _take_over(goal)
    return goal.page


def _take_over(goal: View) -> None:
    tab.open_guest(goal.run)
    what_if.ask_again(goal.asked)
    if goal.lesson is not None:
        try:
            chosen = learning.lesson_with_id(goal.lesson[0])
            learning.choose(chosen, goal.lesson[1])
            learning.use_data(chosen, goal.data)
        except EabError as error:
            notify(str(error))
        what_if.ask_again(goal.lesson_asked, learning.BOARD)


def _view(page: str) -> View:
    run = tab.displayed()
    lesson, data, asked = None, None, None
    if page == LEARN:
        chosen = learning.lesson()
        lesson, data = (chosen.id, learning.stage()), learning.shown_data()
        asked = cast(WhatIfSettings | None, st.session_state.get(learning.BOARD))
    labels = run.run.labels if run.run is not None else ()
    return View(page, run.key, what_if.asked_of(run.key), labels, lesson, data, asked, run)


def _own_look(view: View) -> Look | None:
    """The last position of this tab's board; None if the board's run is no longer shown."""
    seen = cast(Look | None, st.session_state.get(_LOOK))
    on_board = seen is not None and (view.lesson is not None or seen.run.endswith(view.key))
    return seen if on_board else None


def _look_of(reported: dict[str, Any]) -> Look | None:
    """The look in a message from the browser; None if there is none."""
    run, cursor, token = (reported.get(name) for name in ("run", "cursor", "token"))
    if not isinstance(run, str) or len(run) > 500 or not isinstance(cursor, int | None):
        return None
    if token is None:
        return Look(run, cursor, None)
    if isinstance(token, list) and len(token) == 2 and all(isinstance(n, int) for n in token):
        return Look(run, cursor, (token[0], token[1]))
    return None


def _enter(member: Membership) -> None:
    st.session_state[_MEMBERSHIP] = member
    st.session_state[CLASS_SCOPE] = f"class {member.room.code}"
