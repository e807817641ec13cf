"""Questions to a class: asking, answering and results."""

from typing import Final

import streamlit as st

from app.server.class_questions import (
    FORK,
    MOST_OPTIONS,
    NEXT,
    AskedQuestion,
    ClassQuestion,
    fork_question,
    next_question,
)
from app.server.classroom import Classroom
from app.state import learning, polling, status
from app.state.class_of_tab import View
from app.widgets import charts
from app.widgets.glossary import plain
from eab.errors import ClassError
from eab.formatting import quoted
from eab.run import RunState

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
    if problem := status.message():
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
    answered = room.answer_of(polling.session_id(), asked.number) is not None
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
    charts.draw("", sentence, figure, "class", place)


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


@status.errors_as_message()
def _ask(room: Classroom, question: ClassQuestion) -> None:
    _put(room, question)


@status.errors_as_message()
def _ask_of_lesson(room: Classroom, shown: View) -> None:
    lesson, data = learning.lesson(), shown.data
    question = lesson.question
    value = None if data is None else question.quantity.value(data.sources)
    if data is None or value is None:
        raise ClassError("your run does not have this number; choose the example on the page")
    title, ranges = f"{lesson.title}: {question.title}", tuple(question.ranges())
    right = question.range_of(value)
    _put(room, ClassQuestion(title, ranges, right=right, lesson=(lesson.id, data.key)))


@status.errors_as_message()
def _ask_own(room: Classroom) -> None:
    lines = [line.strip() for line in st.session_state[_OPTIONS].splitlines()]
    options = tuple(line for line in lines if line)
    _put(room, ClassQuestion(st.session_state[_TEXT].strip(), options))


def _put(room: Classroom, question: ClassQuestion) -> None:
    """Ask a question, and close the popover, which would cover the answers."""
    room.ask(question)
    st.session_state[MENU] = False


@status.errors_as_message()
def _reveal(room: Classroom) -> None:
    room.reveal()


@status.errors_as_message()
def _dismiss(room: Classroom) -> None:
    room.dismiss()


@status.errors_as_message()
def _answer(room: Classroom, number: int) -> None:
    chosen = st.session_state[_answer_key(room, number)]
    room.answer(polling.session_id(), number, chosen)


def _answer_key(room: Classroom, number: int) -> str:
    return f"class_answer_{room.code}_{number}"
