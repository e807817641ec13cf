"""A class on the page: the way in, the bar above every page, and the board that follows."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app.server.classroom import CODE_LENGTH, ClassState
from app.state import class_of_tab, polling, status
from app.state.class_of_tab import CODE, Look, Membership, View
from app.widgets import class_questions
from app.widgets.glossary import plain
from eab.errors import EabError
from eab.formatting import as_sentence, counted

ATTEND_SECONDS: Final = (
    5.0  # changes are pushed; polls notice who has left, and make up for lost ones
)
_KEY: Final = "class_board"
_DRAWINGS: Final = count()
_mount: Final[Callable[..., Any]] = st.components.v2.component(
    "eab_class", js=(Path(__file__).parent / "static" / "class.js").read_text(encoding="utf-8")
)


Places = tuple[DeltaGenerator, DeltaGenerator]


def reserve() -> Places:
    """Reserve the bar and the way in. A tab enters by its link here, so errors can be shown."""
    class_of_tab.membership()
    return st.container(key="class_bar"), st.sidebar.container(key="class_entry")


def draw(places: Places, page: str) -> None:
    """Draw the way into a class, or the bar of this tab's class; call it after drawing the page."""
    if not class_of_tab.classes().allowed:
        return
    bar, entry = places
    member = class_of_tab.membership()
    if member is None:
        with entry:
            _entry()
        return
    class_of_tab.note_in_link(member)
    class_of_tab.publish(page)

    def attend() -> None:
        if class_of_tab.membership() is not member:
            st.rerun()  # this tab has left: draw the way in again
        _attend(member, page)

    with bar:
        polling.fragment(attend, ATTEND_SECONDS)
    polling.draw_fragments()


def _entry() -> None:
    with st.popover("Class", icon=":material/co_present:", key="class_menu", width="stretch"):
        st.caption("Students follow your screen and answer your questions on their own screens.")
        st.button(
            "Start a class", on_click=_start, type="primary", key="class_start", width="stretch"
        )
        st.divider()
        st.text_input(
            "Code of the class to join",
            key="class_code",
            max_chars=4 * CODE_LENGTH,
            on_change=_join,
        )
        if problem := status.message():
            st.error(plain(problem))


@status.errors_as_message()
def _start() -> None:
    class_of_tab.start()


@status.errors_as_message()
def _join() -> None:
    class_of_tab.join(st.session_state.class_code)


def _attend(member: Membership, page: str) -> None:
    try:
        state = class_of_tab.attend(member)
    except EabError as error:
        _ended(as_sentence(str(error)))
        return
    if state.ended:
        _ended("This class has ended.")
        return
    asked = state.question
    secret = asked is not None and asked.question.has_answer and not asked.revealed
    sees_it = member.role == "lecturer" or follows(member)  # a lecturer's screen is projected
    _board(member, state.shown, asked is not None, secret and sees_it)
    if member.role == "lecturer":
        _lecturer(member, member.room.state)  # with what the board has just reported
    else:
        _student(member, state)
    if asked is not None and class_of_tab.note_guess(member, asked):
        st.rerun()
    goal = class_of_tab.follow_lecturer(member, state.shown, page)
    if goal is not None:
        _redraw(goal, page)


def _redraw(goal: str, page: str) -> None:
    if goal == page:
        st.rerun()
    st.switch_page(f"../pages/{goal or 'explore'}.py")


def _ended(words: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.info(plain(words))
        st.button("Close", on_click=class_of_tab.leave, key="class_close")


def _lecturer(member: Membership, state: ClassState) -> None:
    room = member.room
    with st.container(horizontal=True, vertical_alignment="center", key="class_lecturer"):
        st.markdown(f"Class **{room.code}**: {counted(state.following, 'student')} following")
        with st.popover("Invite", icon=":material/qr_code_2:", key="class_invite"):
            _invitation(room.code)
        shown: View | None = state.shown
        with st.container(
            horizontal=True, vertical_alignment="center", width="content", key="class_ask_now"
        ):
            class_questions.ask_about(room, shown, "now")
        with st.popover(
            "Ask the class", icon=":material/quiz:", key=class_questions.MENU, on_change="rerun"
        ):
            class_questions.ask(room, shown)
        st.button(
            "End the class",
            on_click=partial(_end, member),
            icon=":material/logout:",
            key="class_end",
        )
    if state.question is not None:
        class_questions.lecturer(room, state.question)


@status.errors_as_message()
def _end(member: Membership) -> None:
    member.room.end()


def _invitation(code: str) -> None:
    import segno

    link = _link(code)
    if urlsplit(link).hostname in ("localhost", "127.0.0.1", "::1"):
        st.warning(
            "This link works only on this machine. For a class, start the app with --address "
            "0.0.0.0 and open the page by the name or IP address of this machine."
        )
    else:
        st.caption("The link works on every device that can reach this machine by that name.")
    st.markdown(f"Code: **{code}**")
    st.code(link, language=None)
    drawn = segno.make(link, error="m", micro=False)
    code_picture = drawn.svg_inline(scale=5, light="#ffffff", omitsize=True)
    st.image(code_picture, caption=f"QR code of the link, {code}", width=320)


def _link(code: str) -> str:
    here = urlsplit(st.context.url or "http://localhost:8501")
    query = urlencode({CODE: code})
    return urlunsplit((here.scheme, here.netloc, _base_path(), query, ""))


def _base_path() -> str:
    from streamlit import config

    base = str(config.get_option("server.baseUrlPath")).strip("/")
    return f"/{base}/" if base else "/"


def _student(member: Membership, state: ClassState) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="class_student"):
        if member.following:
            st.markdown(f"You follow class **{member.room.code}**.")
            st.button(
                "Stop following",
                on_click=class_of_tab.stop_following,
                args=(member,),
                key="class_let_go",
            )
        else:
            st.markdown(f"You explore on your own. Class **{member.room.code}** continues.")
            st.button(
                "Follow again",
                on_click=class_of_tab.follow_again,
                args=(member,),
                type="primary",
                key="class_follow",
            )
        st.button("Leave the class", on_click=class_of_tab.leave, key="class_leave")
    if not state.lecturer_here:
        st.warning("The lecturer has lost the connection. You still see their last screen.")
    if state.question is not None and follows(member):
        class_questions.student(member.room, state.question)


def follows(member: Membership) -> bool:
    """Whether this is a student's tab that follows the lecturer."""
    return member.role == "student" and member.following


def _board(member: Membership, shown: View | None, asked: bool, covered: bool) -> None:
    """Report or lead the board; `covered` hides the pictures, because they show the answer."""
    look: Look | None = shown.look if member.following and shown is not None else member.back_at
    if look is not None and asked and follows(member):
        look = replace(look, token=None)  # its sheet would cover the question on a phone
    leads = member.role == "lecturer" and not member.following
    lead = member.lead(look) if look is not None else None
    # The number makes each drawing differ: the browser drops what arrives while it still loads the
    # component, and would ignore the same data sent again.
    drawing = next(_DRAWINGS)
    data = [{"leads": leads, "lead": lead, "covered": covered, "drawing": drawing}]
    told = _mount(key=_KEY, data=data, on_look_change=lambda: None)
    # A state, not a trigger, and not read in the callback: if a drawing is interrupted, the next
    # one still finds it.
    if isinstance(told.look, dict):
        with status.errors_as_message():
            class_of_tab.look(member, told.look)
