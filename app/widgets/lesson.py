"""A lesson on the page: its text, its question or exercise, which may have the sliders of a
calculator, and the board or a chart.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import streamlit as st

from app.state import learning, what_if
from app.state.learning import LessonData
from app.widgets import board, glossary
from app.widgets.charts import draw as draw_chart
from app.widgets.glossary import plain
from eab.errors import EabError
from eab.formatting import as_sentence
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
from eab.lessons.lesson_files import numbers_in, with_numbers
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
        words(lesson.introduction, data.sources)
        return
    section = lesson.sections[learning.stage() - 1]
    st.header(section.title, anchor=False)
    words(section.text, data.sources)
    match section:
        case QuestionSection():
            _question(lesson, section, data)
        case ExerciseSection():
            _exercise(lesson, section, data, shown)
        case _:
            pass


def words(text: str, sources: Sources) -> None:
    """Draw Markdown of a lesson, with this run's numbers filled in."""
    values = {name: plain(parse(name).in_words(sources)) for name in numbers_in(text)}
    glossary.markdown(with_numbers(text, values))


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
        _board(lesson, script, data, view)


def _board(
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


def _question(lesson: Lesson, question: QuestionSection, data: LessonData) -> None:
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
    words(question.explanation, data.sources)


def _exercise(lesson: Lesson, exercise: ExerciseSection, data: LessonData, shown: RunState) -> None:
    try:
        if exercise.calculator:
            numbers = draw_calculator(exercise.calculator, data.sources)
            met = [
                _goal(goal, numbers.value(goal), None, numbers.unit(goal))
                for goal in exercise.goals
            ]
        else:
            met = [_board_goal(goal, data.sources.run, shown) for goal in exercise.goals]
    except EabError as error:
        st.error(plain(as_sentence(str(error))))
        return
    if all(met):
        learning.solved().add(lesson.id)
        st.success("Solved.")
        words(exercise.explanation, data.sources)


def _board_goal(goal: Goal, recorded: RunState, shown: RunState) -> bool:
    assert isinstance(goal.quantity, LessonQuantity)
    measure = MEASURES[goal.quantity.measure]
    return _goal(goal, measure.compute(shown), measure.compute(recorded), measure.unit)


def _goal(goal: Goal, value: float | None, recorded: float | None, unit: Unit) -> bool:
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
