"""Every lesson of the project on its recordings: the answer to its question computed independently,
its numbers, its script, and an exercise that is unsolved at first and can be solved.
"""

import itertools
import math

import pytest
from lesson_answers import ANSWERS, highest_entropy
from lesson_sources import example_events, example_sources
from places import ROOT

from eab.engine.what_if.resimulate import resimulate
from eab.lessons import bundled_runs
from eab.lessons.lesson import Goal, Lesson, QuestionSection, ReadingSection, guide
from eab.lessons.lesson_files import lessons, numbers_in, sources_of
from eab.lessons.measures import MEASURES, LessonQuantity, parse
from eab.lessons.pictures import CALCULATORS, PICTURES, point_at
from eab.run import RunState, fold

BY_ID = {lesson.id: lesson for lesson in lessons()}
each_lesson = pytest.mark.parametrize("lesson", lessons(), ids=list(BY_ID))


@each_lesson
def test_the_answer_agrees_with_the_recording(lesson: Lesson) -> None:
    value = lesson.question.quantity.value(example_sources(lesson))
    assert value == pytest.approx(ANSWERS[lesson.id](example_events(lesson)), abs=1e-5)


@each_lesson
def test_the_answer_is_far_from_the_bounds(lesson: Lesson) -> None:
    """Otherwise, a guess could be wrong by a hair."""
    value = lesson.question.quantity.value(example_sources(lesson))
    assert all(abs(value - bound) > 0.04 * bound for bound in lesson.question.bounds)


@each_lesson
def test_every_number_named_in_the_text_exists(lesson: Lesson) -> None:
    sources = example_sources(lesson)
    texts = [lesson.introduction, *(section.text for section in lesson.sections)]
    texts += [lesson.question.explanation, lesson.exercise.explanation]
    for name in [name for text in texts for name in numbers_in(text)]:
        assert parse(name).in_words(sources) != "none", name


@each_lesson
def test_the_board_is_led_only_to_steps_and_tokens_of_the_run(lesson: Lesson) -> None:
    run = fold(example_events(lesson))
    for number, section in enumerate(lesson.sections):
        if isinstance(section, ReadingSection) or section.script.picture:
            continue
        lead = guide(section.script, run, str(number))
        assert lead.cursor is None or 0 <= lead.cursor < len(run.steps)
        if lead.token is not None:
            run.paths[lead.token[0]].tokens[lead.token[1]]
        if isinstance(section, QuestionSection):
            assert lead.cursor is not None or lead.token is not None


@each_lesson
def test_the_exercise_is_unsolved_at_first_and_can_be_solved(lesson: Lesson) -> None:
    exercise, sources = lesson.exercise, example_sources(lesson)
    if exercise.calculator:
        calculator = CALCULATORS[exercise.calculator]
        knobs = calculator.knobs
        start = {name: knob.start for name, knob in knobs.items()}
        every = (
            dict(zip(knobs, values, strict=True))
            for values in itertools.product(*(knob.values for knob in knobs.values()))
        )

        def solves(values: dict[str, float]) -> bool:
            numbers = calculator.numbers(values, sources)
            return all(goal.met(numbers[str(goal.quantity)], 0.0) for goal in exercise.goals)

        assert not solves(start)
        assert any(solves(values) for values in every)
        return
    recorded, events = sources.run, example_events(lesson)
    assert not on_board(lesson, recorded, recorded)
    r = recorded.started.config.r
    highest = highest_entropy(events)
    others = [(threshold, r) for threshold in (1.25, 1.6, 2.4, 2.6, highest + 0.01)]
    others += [(None, step) for step in (8, 16, 64)]
    assert any(
        on_board(lesson, fold(resimulate(events, threshold, step).events), recorded)
        for threshold, step in others
    )


@each_lesson
def test_every_highlight_is_a_part_of_its_chart_or_a_panel(lesson: Lesson) -> None:
    for section in lesson.sections:
        if isinstance(section, ReadingSection) or not section.script.highlight:
            continue
        script = section.script
        if not script.picture:
            assert script.highlight == "KV cache"
            continue
        _, figure = PICTURES[script.picture].draw(example_sources(lesson))
        shapes = len(figure.layout.shapes)
        point_at(figure, script.highlight)
        faded = {trace.opacity for trace in figure.data}
        assert len(figure.layout.shapes) == shapes + 1 or faded == {None, 0.3}, section.title


def on_board(lesson: Lesson, shown: RunState, recorded: RunState) -> bool:
    found = []
    for goal in lesson.exercise.goals:
        assert isinstance(goal.quantity, LessonQuantity)
        compute = MEASURES[goal.quantity.measure].compute
        found.append(goal.met(compute(shown), compute(recorded)))
    return all(found)


def test_relative_goals_round_counts_to_whole_numbers_but_not_shares() -> None:
    half = Goal("forks", at_least=0.5, at_most=0.5, relative=True)
    assert half.limits(7) == (4, 3)
    assert half.limits(0.5) == (0.25, 0.25)
    assert half.met(3, 8) is half.met(5, 8) is False
    assert half.met(4, 8)
    assert Goal("entropy", 0.5, None).limits(7) == (0.5, None)


def test_the_growth_exercise_cannot_be_solved_with_the_threshold() -> None:
    lesson = BY_ID["growth"]
    events = example_events(lesson)
    recorded = fold(events)
    for threshold in (1.6, 2.4, 4.0):
        what_if = fold(resimulate(events, threshold, recorded.started.config.r).events)
        assert not on_board(lesson, what_if, recorded)


@each_lesson
def test_the_last_section_names_code_that_exists(lesson: Lesson) -> None:
    words = lesson.sections[-1].text.split("`")[1::2]
    paths = [word for word in words if "/" in word]
    assert paths
    for path in paths:
        assert (ROOT / path).exists(), path


def test_the_sources_of_a_lesson_are_listed() -> None:
    assert sources_of(BY_ID["tokens"]) == {"run"}
    assert sources_of(BY_ID["kv-cache"]) == {"run", "caches"}
    assert "batching" in sources_of(BY_ID["batching"])
    assert sources_of(BY_ID["quantization"]) == {"formats"}


OF_RUNS = {name: measure for name, measure in MEASURES.items() if measure.kind is RunState}


@pytest.mark.parametrize("recording", bundled_runs.recordings(), ids=lambda one: one.file)
def test_every_measure_of_every_bundled_run_is_a_valid_number_or_none(
    recording: bundled_runs.Recording,
) -> None:
    run = fold(bundled_runs.events_of(recording))
    found = {name: measure.compute(run) for name, measure in OF_RUNS.items()}
    for name, value in found.items():
        most = 1 + 1e-9 if OF_RUNS[name].unit == "share" else math.inf
        assert value is None or (math.isfinite(value) and 0 <= value <= most), name
    assert found["bytes per token by the formula"] == found["bytes per token"]


def test_the_measures_of_a_run_without_tokens_are_finite_or_none() -> None:
    run = fold(bundled_runs.events_of(bundled_runs.recordings()[0])[:1])
    for name, measure in OF_RUNS.items():
        value = measure.compute(run)
        assert value is None or math.isfinite(value), name
    assert guide(BY_ID["tokens"].question.script, run, "x").token is None
