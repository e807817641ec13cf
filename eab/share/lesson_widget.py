"""A lesson in a notebook: the text and the question of `eab.lessons` above the board.

It has the stages, charts and code of the Learn page. Anything that needs the page's sliders is left
out, and the widget says so.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import ipywidgets as widgets
from markdown_it import MarkdownIt

from eab.board.messages import Feed
from eab.formatting import as_sentence
from eab.lessons.lesson import ExerciseSection, Lesson, QuestionSection, Script, guide
from eab.lessons.lesson_files import numbers_in, with_numbers
from eab.lessons.measures import bundled_sources, parse, written
from eab.lessons.pictures import PICTURES, point_at
from eab.run import fold
from eab.run.events import Event
from eab.share.widget import BoardWidget, WithStill

NOT_YET: Final = "Guess first to see the chart."
IN_THE_APP: Final = "*The Learn page of the app has the sliders and checks the result.*"
_MARKDOWN: Final = MarkdownIt("commonmark", {"html": False})


class LessonWidget(WithStill, widgets.VBox):  # type: ignore[misc]  # it has no types
    """A lesson, stage by stage; `guess` is the number of the guessed range, `board` the board."""

    def __init__(self, lesson: Lesson, events: Sequence[Event]) -> None:
        """Start at the introduction.

        Args:
            events: The finished run that the lesson uses.
        """
        self.lesson = lesson
        self.stage = 0
        self.guess: int | None = None
        self.board: BoardWidget | None = None
        self._events = events
        self._run = fold(events)
        self._sources = bundled_sources(self._run)
        self._words, self._picture = widgets.HTML(), widgets.VBox()
        self._place = widgets.Label()
        self._back = _button("Back", partial(self._go, -1))
        self._next = _button("Next", partial(self._go, 1))
        self._choices = widgets.RadioButtons(options=lesson.question.ranges(), index=None)
        self._reveal = _button("Show me", self._note_guess)
        self._asking = widgets.VBox([self._choices, self._reveal])
        super().__init__(
            [
                self._words,
                self._asking,
                widgets.HBox([self._back, self._place, self._next]),
                self._picture,
            ]
        )
        self._show()

    def _still(self) -> str:
        return str(_MARKDOWN.render(self.words()))

    def words(self) -> str:
        """The text of the stage as Markdown, with the numbers of the run."""
        if self.stage == 0:
            title, paragraphs = self.lesson.title, [self.lesson.summary, self.lesson.introduction]
        else:
            section = self.lesson.sections[self.stage - 1]
            title, paragraphs = section.title, [section.text]
            if isinstance(section, QuestionSection):
                paragraphs += self._outcome(section)
            elif isinstance(section, ExerciseSection):
                paragraphs.append(IN_THE_APP)
        text = "\n\n".join([f"### {title}", *paragraphs])
        return with_numbers(
            text, {name: parse(name).in_words(self._sources) for name in numbers_in(text)}
        )

    def _outcome(self, question: QuestionSection) -> list[str]:
        value = question.quantity.value(self._sources)
        if value is None:
            return ["This run does not have this number. Show the lesson without your own run."]
        if self.guess is None:
            return []
        said = f"{written(value, question.quantity.unit)}."
        if self.guess == question.range_of(value):
            said = f"**Right: {said}**"
        else:
            said = f"**You guessed {question.ranges()[self.guess]}. It is {said}**"
        return [said, question.explanation]

    # ---- user actions

    def _go(self, direction: int) -> None:
        self.stage = min(max(0, self.stage + direction), len(self.lesson.sections))
        self._show()

    def _note_guess(self) -> None:
        if self._choices.index is not None:
            self.guess = self._choices.index
            self._show()

    # ---- display

    def _show(self) -> None:
        last = len(self.lesson.sections)
        self._words.value = f"{self._still()}<style>{self.hides_still}</style>"
        self._place.value = f"{self.stage + 1} of {last + 1}"
        self._back.disabled, self._next.disabled = self.stage == 0, self.stage == last
        self._asking.layout.display = "" if self._asks() else "none"
        self._picture.children = [self._drawn()]

    def _asks(self) -> bool:
        section = self.lesson.sections[self.stage - 1] if self.stage else None
        has_answer = self.lesson.question.quantity.value(self._sources) is not None
        return isinstance(section, QuestionSection) and self.guess is None and has_answer

    def _drawn(self) -> widgets.Widget:
        if self.lesson.covers(self.stage, self.guess is not None):
            return widgets.Label(NOT_YET)
        script = self.lesson.script_at(self.stage)
        if not script.picture:
            return self._led_board(script)
        from eab.figures.charts import go  # takes half a second

        sentence, figure = PICTURES[script.picture].draw(self._sources)
        point_at(figure, script.highlight)
        return widgets.VBox([widgets.Label(as_sentence(sentence)), go.FigureWidget(figure)])

    def _led_board(self, script: Script) -> BoardWidget:
        run, asked = self._run, {}
        if script.threshold is not None or script.r is not None:
            from eab.engine.what_if.resimulate import resimulate  # needs torch

            run = fold(resimulate(self._events, script.threshold, script.r).events)
            asked = {"asked": {"threshold": script.threshold, "r": script.r}}
        if self.board is None:
            self.board = BoardWidget(self._run, autoplay=False)
        name = f"{self.lesson.id} {self.stage} {self.guess}"
        lead = guide(script, run, name, self.lesson.hides).as_message()
        message = Feed().message(self._run, "notebook", "replay")
        self.board.message = message | asked | {"guide": lead}
        return self.board


def _button(words: str, action: Any) -> widgets.Button:
    made = widgets.Button(description=words)
    made.on_click(lambda _button: action())
    return made
