"""Learn: lessons on a real run; the board and the charts follow the text.

Before the guess, the text and the question take the place of the picture.
"""

from collections.abc import Callable

import streamlit as st

from app.state import learning, status, what_if
from app.widgets import lesson as lessons_on_page
from app.widgets.glossary import plain
from app.widgets.open_menu import upload
from app.widgets.status_line import show_problems
from eab.formatting import counted
from eab.lessons.lesson import Lesson
from eab.lessons.lesson_files import lessons

PAGES = {
    "explore": "Explore",
    "compare": "Compare",
    "memory": "Memory",
    "bmc": "BMC",
    "speculative": "Speculative decoding",
    "batching": "Batching",
    "quantization": "Quantization",
}


def choose() -> None:
    status.clear()
    learning.choose(learning.lesson_with_id(st.session_state.lesson_list))


def open_lesson(data: bytes, _: str) -> None:
    learning.choose(learning.add_uploaded(data))


def choice(lesson: Lesson) -> None:
    titles = {each.id: f"{number}. {each.title}" for number, each in enumerate(lessons(), start=1)}
    titles.setdefault(lesson.id, lesson.title)
    minutes = {each.id: each.minutes for each in (*lessons(), lesson)}
    is_map, guessed, solved = learning.stage() == 0, learning.guessed(), learning.solved()

    def entry(name: str) -> str:
        done = " ✓" if name in solved else ""
        if not is_map:
            return titles[name] + done
        guess = f", guess {'right' if guessed[name] else 'wrong'}" if name in guessed else ""
        return plain(f"{titles[name]}, {minutes[name]} min{guess}{done}")

    st.session_state.lesson_list = lesson.id
    if is_map:
        st.radio("Lesson", list(titles), format_func=entry, key="lesson_list", on_change=choose)
    else:
        st.selectbox("Lesson", list(titles), format_func=entry, key="lesson_list", on_change=choose)


def way(lesson: Lesson) -> None:
    """Draw Back and Next, and between them the position in the lesson."""
    stage, last = learning.stage(), len(lesson.sections)
    with st.container(horizontal=True, vertical_alignment="center", key="lesson_way"):
        st.button(
            "Back",
            disabled=stage == 0,
            on_click=learning.go_to,
            args=(stage - 1,),
            icon=":material/arrow_back:",
            key="lesson_back",
        )
        st.text(f"{stage + 1} of {last + 1}")
        if stage < last:
            next_button("Next", learning.go_to, stage + 1)
        elif (following := next_lesson(lesson)) is not None:
            next_button("Next lesson", learning.choose, following)


def next_button(label: str, on_click: Callable[..., None], goal: int | Lesson) -> None:
    st.button(
        label,
        on_click=on_click,
        args=(goal,),
        type="primary",
        icon=":material/arrow_forward:",
        icon_position="right",
        key="lesson_next",
    )


def next_lesson(lesson: Lesson) -> Lesson | None:
    ids = [each.id for each in lessons()]
    number = ids.index(lesson.id) + 1 if lesson.id in ids else len(ids)
    return lessons()[number] if number < len(ids) else None


def numbers(lesson: Lesson) -> None:
    """Draw where the numbers come from, and a choice if there is one."""
    if learning.uses_lecturers_data(lesson):
        st.caption("These numbers come from the class.")
        label = "Use yours" if learning.uses_own(lesson) else "Use the example"
        st.button(label, on_click=learning.use_own_data, key="lesson_feed")
    elif learning.own_exists(lesson):
        st.segmented_control(
            "Numbers from",
            [False, True],
            format_func=lambda own: "Yours" if own else "The example",
            default=False,
            required=True,
            key=learning.OWN,
        )


def end(lesson: Lesson) -> None:
    """Say what was done, and offer what comes next."""
    guessed, known = learning.guessed(), {each.id for each in lessons()}
    right = sum(guessed[name] for name in known & guessed.keys())
    st.success(
        f"Lesson done. So far: {right} of {counted(len(known & guessed.keys()), 'guess')} right, "
        f"{len(known & learning.solved())} of {len(known)} exercises solved."
    )
    st.page_link(f"../pages/{lesson.page}.py", label=f"More on the {PAGES[lesson.page]} page")
    if next_lesson(lesson) is None:
        own = "Now ask your own question"
        st.page_link("../pages/explore.py", label=own, icon=":material/edit:")


def own_lesson() -> None:
    with st.expander("Open a lesson file"):
        upload("Lesson (Markdown)", "md", "lesson_upload", open_lesson, most_mib=1)
        st.caption(
            "docs/lessons.md describes the format. While this server runs, the address of this "
            "page opens your lesson for others."
        )


lesson = learning.lesson()
left, right = st.columns([2, 5], gap="medium")
with left:
    st.title("How does a language model write?", anchor=False)
    with st.container(key="lesson_map" if learning.stage() == 0 else "lesson_choice"):
        choice(lesson)
    way(lesson)
    numbers(lesson)
data = learning.data_of(lesson)
learning.enter(lesson, data.run, lessons_on_page.view_name(lesson, data))
view = what_if.view_of(data.run, learning.BOARD)
shown = data.run.run if view is None else view.run.run
assert shown is not None
covered = lesson.covers(learning.stage(), learning.guess(lesson, data.key) is not None)
with left:
    show_problems()
    if learning.stage() == 0:
        st.text(lesson.summary)
    if learning.stage() == 0 or not covered:
        lessons_on_page.draw_words(lesson, data, shown)
    if learning.stage() == len(lesson.sections):
        end(lesson)
with st.sidebar:
    own_lesson()
with right, st.container(key="lesson_picture"):
    if learning.stage() == 0:
        lessons_on_page.draw_opening()
    elif covered:
        with st.container(key="lesson_card"):
            lessons_on_page.draw_words(lesson, data, shown)
    else:
        lessons_on_page.draw_picture(lesson, data, view)
