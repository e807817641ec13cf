"""A class on the page: the way in, the bar above every page, the board, and questions."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app.server.class_questions import (
    FORK,
    MOST_OPTIONS,
    NEXT,
    AskedQuestion,
    ClassQuestion,
    fork_question,
    next_question,
)
from app.server.classroom import CODE_LENGTH, Classroom, ClassState
from app.state import class_of_tab, learning, session
from app.state.class_of_tab import CODE, Look, Membership, View
from app.widgets import elements
from app.widgets.elements import plain
from eab.errors import ClassError, EabError
from eab.formatting import as_sentence, counted, quoted
from eab.run import RunState

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
        session.fragment(attend, ATTEND_SECONDS)
    session.draw_fragments()


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
        if problem := session.message():
            st.error(plain(problem))


@session.errors_as_message()
def _start() -> None:
    class_of_tab.start()


@session.errors_as_message()
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
            ask_about(room, shown, "now")
        with st.popover("Ask the class", icon=":material/quiz:", key=MENU, on_change="rerun"):
            ask(room, shown)
        st.button(
            "End the class",
            on_click=partial(_end, member),
            icon=":material/logout:",
            key="class_end",
        )
    if state.question is not None:
        lecturer(room, state.question)


@session.errors_as_message()
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
        student(member.room, state.question)


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
        with session.errors_as_message():
            class_of_tab.look(member, told.look)


MENU: Final = "class_ask"  # whether the popover is open
_TEXT, _OPTIONS = "class_question_text", "class_question_options"


def ask_about(room: Classroom, shown: View | None, place: str) -> None:
    """Draw what a lecturer can ask about the lesson or the token that is shown."""
    if shown is not None and shown.lesson is not None:
        title = plain(learning.lesson().question.title)
        st.button(
            f"The lesson’s question: {title}",
            on_click=_ask_of_lesson,
            args=(room, shown),
            key=f"class_ask_lesson_{place}",
        )
    else:
        _ask_about_token(room, None if shown is None else _selected(shown), place)


def ask(room: Classroom, shown: View | None) -> None:
    """Draw all that a lecturer can ask."""
    ask_about(room, shown, "menu")
    st.text_input("Your own question", key=_TEXT)
    st.text_area(f"Answers, one per line (2 to {MOST_OPTIONS})", key=_OPTIONS)
    st.button("Ask", on_click=_ask_own, args=(room,), key="class_ask_own")
    if problem := session.message():
        st.error(plain(problem))
    st.download_button(
        "Answers so far (CSV)",
        room.csv,
        "class.csv",
        on_click="ignore",
        key="class_csv",
    )


def _ask_about_token(room: Classroom, about: tuple[RunState, int, int] | None, place: str) -> None:
    followed = None if about is None else next_question(*about)
    forks = None if about is None else fork_question(*about)
    if about is None:
        st.caption("Select a token on the board to ask about it.")
    elif followed is None:
        st.caption("Only one token is likely at the selected place.")
    for key, title, question in (("next", NEXT, followed), ("fork", FORK, forks)):
        st.button(
            title,
            disabled=question is None,
            on_click=_ask,
            args=(room, question),
            key=f"class_ask_{key}_{place}",
        )


def lecturer(room: Classroom, asked: AskedQuestion) -> None:
    """Draw the answers so far; the class sees them, so Reveal adds the model's probabilities."""
    _result(asked, f"lecturer-{asked.number}")
    with st.container(horizontal=True, key="class_question_lecturer"):
        if not asked.revealed:
            st.button("Reveal", on_click=_reveal, args=(room,), type="primary", key="class_reveal")
        st.button("Close the question", on_click=_dismiss, args=(room,), key="class_dismiss")


def student(room: Classroom, asked: AskedQuestion) -> None:
    """Draw the question or, after the reveal, its result."""
    if asked.revealed:
        _result(asked, f"student-{asked.number}")
        return
    options = [plain(option) for option in asked.question.options]
    with st.container(key="class_question"):
        _passage(asked.question)
        st.radio(
            plain(asked.question.text),
            range(len(options)),
            index=None,
            format_func=options.__getitem__,
            on_change=_answer,
            args=(room, asked.number),
            key=_answer_key(room, asked.number),
        )
    answered = room.answer_of(session.session_id(), asked.number) is not None
    st.caption(
        "Answered. You can change your answer until the result is shown."
        if answered
        else "Your answer is anonymous."
    )


def _result(asked: AskedQuestion, place: str) -> None:
    from eab.figures.answers import class_figure, class_sentence

    question, counts = asked.question, asked.counts
    model = question.probabilities if asked.revealed else None
    sentence = class_sentence(question.options, counts, model)
    if question.right is not None and asked.revealed:
        sentence += f" In this run it was {quoted(question.options[question.right])}."
    _passage(question)
    st.markdown(f"**{plain(question.text)}**")
    figure = class_figure(question.options, counts, model)
    elements.draw_chart("", sentence, figure, "class", place)


def _passage(question: ClassQuestion) -> None:
    if question.passage:
        st.markdown(f"> {plain(question.passage)}")


def _selected(shown: View) -> tuple[RunState, int, int] | None:
    """The run and the token (path and index) that are selected on the lecturer's board."""
    run, look = shown.run.run, shown.look
    if run is None or look is None or look.token is None or look.run != shown.key:
        return None
    with shown.run.locked:
        path, index = look.token
        known = 0 <= path < len(run.paths) and 0 <= index < len(run.paths[path].tokens)
    return (run, path, index) if known else None


@session.errors_as_message()
def _ask(room: Classroom, question: ClassQuestion) -> None:
    _put(room, question)


@session.errors_as_message()
def _ask_of_lesson(room: Classroom, shown: View) -> None:
    lesson, data = learning.lesson(), shown.data
    question = lesson.question
    value = None if data is None else question.quantity.value(data.sources)
    if data is None or value is None:
        raise ClassError("your run does not have this number; choose the example on the page")
    title, ranges = f"{lesson.title}: {question.title}", tuple(question.ranges())
    right = question.range_of(value)
    _put(room, ClassQuestion(title, ranges, right=right, lesson=(lesson.id, data.key)))


@session.errors_as_message()
def _ask_own(room: Classroom) -> None:
    lines = [line.strip() for line in st.session_state[_OPTIONS].splitlines()]
    options = tuple(line for line in lines if line)
    _put(room, ClassQuestion(st.session_state[_TEXT].strip(), options))


def _put(room: Classroom, question: ClassQuestion) -> None:
    """Ask a question, and close the popover, which would cover the answers."""
    room.ask(question)
    st.session_state[MENU] = False


@session.errors_as_message()
def _reveal(room: Classroom) -> None:
    room.reveal()


@session.errors_as_message()
def _dismiss(room: Classroom) -> None:
    room.dismiss()


@session.errors_as_message()
def _answer(room: Classroom, number: int) -> None:
    chosen = st.session_state[_answer_key(room, number)]
    room.answer(session.session_id(), number, chosen)


def _answer_key(room: Classroom, number: int) -> str:
    return f"class_answer_{room.code}_{number}"
