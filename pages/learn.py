"""Learn: lessons on a real run; the board and the charts follow the text.

Before the guess, the text and the question take the place of the picture. An exercise may have the
sliders of a calculator.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import streamlit as st

from app.state import learning, session, what_if
from app.state.learning import LessonData
from app.widgets import board, elements
from app.widgets.elements import draw_chart, plain, show_problems
from app.widgets.open_menu import upload
from eab.errors import EabError
from eab.formatting import as_sentence, counted
from eab.lessons import bundled_runs
from eab.lessons.lesson import (
    ExerciseSection,
    Goal,
    Guide,
    Lesson,
    QuestionSection,
    Script,
    Topic,
    guide,
)
from eab.lessons.lesson_files import lessons, numbers_in, with_numbers
from eab.lessons.measures import MEASURES, LessonQuantity, Sources, Unit, parse, written
from eab.lessons.pictures import CALCULATORS, PICTURES, Calculator, point_at
from eab.run import RunState, fold_prefix


@dataclass(frozen=True)
class Numbers:
    """The values of the sliders, and the results."""

    calculator: Calculator
    values: Mapping[str, float]

    def value(self, goal: Goal) -> float:
        """The number that a goal is about."""
        assert isinstance(goal.quantity, str)
        return self.values[goal.quantity]

    def unit(self, goal: Goal) -> Unit:
        """The unit of this number."""
        assert isinstance(goal.quantity, str)
        return self.calculator.results.get(goal.quantity, "")


def draw_calculator(name: str, sources: Sources) -> Numbers:
    """Draw the sliders and the results. Raises ConfigError if the results cannot be computed."""
    calculator = CALCULATORS[name]
    values = {
        knob_name: st.select_slider(
            knob.label, knob.values, value=knob.start, key=f"knob-{name}-{knob_name}"
        )
        for knob_name, knob in calculator.knobs.items()
    }
    numbers = calculator.numbers(values, sources)
    for result, unit in calculator.results.items():
        st.markdown(f"{result}: **{plain(written(numbers[result], unit))}**")
    st.caption(plain(calculator.formula))
    return Numbers(calculator, numbers)


def draw_words(lesson: Lesson, data: LessonData, shown: RunState) -> None:
    """Draw the text of the stage, and its question or exercise."""
    if learning.stage() == 0:
        st.header(lesson.title, anchor=False)
        draw_markdown(lesson.introduction, data.sources)
        return
    section = lesson.sections[learning.stage() - 1]
    st.header(section.title, anchor=False)
    draw_markdown(section.text, data.sources)
    match section:
        case QuestionSection():
            draw_question(lesson, section, data)
        case ExerciseSection():
            draw_exercise(lesson, section, data, shown)
        case _:
            pass


def draw_markdown(text: str, sources: Sources) -> None:
    """Draw Markdown of a lesson, with this run's numbers filled in."""
    values = {name: plain(parse(name).in_words(sources)) for name in numbers_in(text)}
    elements.markdown(with_numbers(text, values))


def draw_opening() -> None:
    """Draw the moving picture of a lesson's first page: the tree of a recording plays by itself."""
    run = fold_prefix(bundled_runs.events_of(bundled_runs.recordings()[0])).started_run()
    message = board.message(run, "lesson-opening", "replay", autoplay=True)
    lead = Guide("opening", hides=get_args(Topic))
    board.mount(message | {"guide": lead.as_message()}, key="lesson_board")


def draw_picture(lesson: Lesson, data: LessonData, view: what_if.WhatIfView | None) -> None:
    """Draw the board, or a chart."""
    script = lesson.script_at(learning.stage())
    if script.picture:
        sentence, figure = PICTURES[script.picture].draw(data.sources)
        point_at(figure, script.highlight)
        key = f"{script.picture}-{script.highlight}-{data.key}"
        draw_chart("", sentence, figure, "lesson", key)
    else:
        draw_board(lesson, script, data, view)


def draw_board(
    lesson: Lesson, script: Script, data: LessonData, view: what_if.WhatIfView | None
) -> None:
    recorded, shown = data.run.run, (data.run if view is None else view.run).run
    assert recorded is not None
    assert shown is not None
    message = board.message(recorded, data.run.key, "replay", autoplay=False)
    lead = guide(script, shown, view_name(lesson, data), lesson.hides)
    more: dict[str, Any] = {} if view is None else view.message
    possible = what_if.possible(data.run)
    board.mount(
        message | {"guide": lead.as_message()} | more,
        board.Offers(
            what_if=partial(what_if.ask, data.run, board=learning.BOARD) if possible else None,
        ),
        key="lesson_board",
    )


def view_name(lesson: Lesson, data: LessonData) -> str:
    """A name for what the stage shows, so that the board is led there only once."""
    answered = learning.guess(lesson, data.key) is not None
    return f"{lesson.id} {learning.stage()} {data.key} {answered}"


def draw_question(lesson: Lesson, question: QuestionSection, data: LessonData) -> None:
    value, unit = question.quantity.value(data.sources), question.quantity.unit
    if value is None:
        st.info("This run does not have this number. Choose the example above.")
        return
    ranges = question.ranges()
    guess = learning.guess(lesson, data.key)
    if guess is None:
        chosen = st.radio(
            "Your guess",
            range(len(ranges)),
            index=None,
            format_func=ranges.__getitem__,
            key=f"guess-{lesson.id}-{data.key}",
        )
        st.button(
            "Show me",
            type="primary",
            disabled=chosen is None,
            on_click=learning.note_guess,
            args=(lesson, data.key, chosen),
            key="lesson_reveal",
        )
        return
    right = question.range_of(value)
    learning.guessed()[lesson.id] = guess == right
    if guess == right:
        st.success(f"Right: {plain(written(value, unit))}.")
    else:
        st.info(f"You guessed {plain(ranges[guess])}. It is {plain(written(value, unit))}.")
    draw_markdown(question.explanation, data.sources)


def draw_exercise(
    lesson: Lesson, exercise: ExerciseSection, data: LessonData, shown: RunState
) -> None:
    try:
        if exercise.calculator:
            numbers = draw_calculator(exercise.calculator, data.sources)
            met = [
                draw_goal(goal, numbers.value(goal), None, numbers.unit(goal))
                for goal in exercise.goals
            ]
        else:
            met = [draw_board_goal(goal, data.sources.run, shown) for goal in exercise.goals]
    except EabError as error:
        st.error(plain(as_sentence(str(error))))
        return
    if all(met):
        learning.solved().add(lesson.id)
        st.success("Solved.")
        draw_markdown(exercise.explanation, data.sources)


def draw_board_goal(goal: Goal, recorded: RunState, shown: RunState) -> bool:
    assert isinstance(goal.quantity, LessonQuantity)
    measure = MEASURES[goal.quantity.measure]
    return draw_goal(goal, measure.compute(shown), measure.compute(recorded), measure.unit)


def draw_goal(goal: Goal, value: float | None, recorded: float | None, unit: Unit) -> bool:
    met = goal.met(value, recorded or 0.0)
    low, high = goal.limits(recorded or 0.0)
    limits = " and ".join(
        f"{words} {written(limit, unit)}"
        for words, limit in (("at least", low), ("at most", high))
        if limit is not None
    )
    name = goal.quantity if isinstance(goal.quantity, str) else goal.quantity.measure
    now = "none" if value is None else written(value, unit)
    mark = ":material/check_circle:" if met else ":material/radio_button_unchecked:"
    st.markdown(f"{mark} {plain(f'{name}: {limits}. Now {now}.')}")
    return met


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
    session.clear()
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
learning.enter(lesson, data.run, view_name(lesson, data))
view = what_if.view_of(data.run, learning.BOARD)
shown = data.run.run if view is None else view.run.run
assert shown is not None
covered = lesson.covers(learning.stage(), learning.guess(lesson, data.key) is not None)
with left:
    show_problems()
    if learning.stage() == 0:
        st.text(lesson.summary)
    if learning.stage() == 0 or not covered:
        draw_words(lesson, data, shown)
    if learning.stage() == len(lesson.sections):
        end(lesson)
with st.sidebar:
    own_lesson()
with right, st.container(key="lesson_picture"):
    if learning.stage() == 0:
        draw_opening()
    elif covered:
        with st.container(key="lesson_card"):
            draw_words(lesson, data, shown)
    else:
        draw_picture(lesson, data, view)
