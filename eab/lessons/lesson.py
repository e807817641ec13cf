"""The parts of a lesson, as frozen values; `eab.lessons.lesson_files` reads them from a file. The
script of a section becomes a guide for the board, for the run that is shown. Each guide applies
once, so the user is free to move on.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta

from eab.lessons.measures import LessonQuantity, first_fork, highest_entropy, written
from eab.run import RunState

NamedPlace = Literal["first fork", "highest entropy", "most paths", "first step", "last step"]
MAX_STEP: Final = 1_000_000
StepNumber = Annotated[int, Meta(ge=0, le=MAX_STEP)]
Place: TypeAlias = NamedPlace | StepNumber
# tuple[StepNumber, StepNumber] in a union with str crashes msgspec 0.22 in garbage collection.
PathAndIndex = Annotated[tuple[StepNumber, ...], Meta(min_length=2, max_length=2)]
Drawer = Literal["tables", "help"]
# The entropy chart; what the board says of forks and weights, of KV rows, and of answers
Topic = Literal["entropy", "forks", "rows", "answers"]


@dataclass(frozen=True, slots=True)
class Script:
    """What the board or a chart shows in a section."""

    picture: str = ""  # name of the chart to show; empty for the board
    cursor: Place | None = None
    select: Place | PathAndIndex | None = None  # the token to select: a place, or path and index
    show: Drawer | None = None  # what to open over the charts of the board
    highlight: str = ""  # words of the title or line of a chart to point at, or "KV cache"
    # threshold (nats) of a what-if run; None as recorded
    threshold: Annotated[float, Meta(ge=0, le=20)] | None = None
    # growth step of a what-if run; None as recorded
    r: Annotated[int, Meta(ge=1, le=MAX_STEP)] | Literal["auto"] | None = None


@dataclass(frozen=True, slots=True)
class StepSection:
    """A section that shows something."""

    title: str
    text: str
    script: Script


@dataclass(frozen=True, slots=True)
class QuestionSection:
    """A section that asks for a guess before it shows the picture."""

    title: str
    text: str
    script: Script
    quantity: LessonQuantity
    bounds: tuple[float, ...]  # the limits between the answer ranges, ascending
    explanation: str

    def range_of(self, value: float) -> int:
        """The index of the range that contains the value; a bound belongs to the range above."""
        return sum(value >= bound for bound in self.bounds)

    def ranges(self) -> list[str]:
        """The ranges between the bounds, as text."""
        at = [written(bound, self.quantity.unit) for bound in self.bounds]
        between = [f"{low} to {high}" for low, high in pairwise(at)]
        return [f"less than {at[0]}", *between, f"{at[-1]} or more"]


@dataclass(frozen=True, slots=True)
class Goal:
    """A number and the limits that it has to meet."""

    quantity: LessonQuantity | str
    at_least: float | None  # minimum; None for no limit
    at_most: float | None  # maximum; None for no limit
    relative: bool = False  # whether the limits are multiples of the recorded run's value

    def limits(self, recorded: float) -> tuple[float | None, float | None]:
        """Minimum and maximum; whole numbers for counts, so half of 7 forks is at most 3."""
        factor = recorded if self.relative else 1.0
        low = None if self.at_least is None else self.at_least * factor
        high = None if self.at_most is None else self.at_most * factor
        if not isinstance(factor, int):
            return low, high
        return (
            None if low is None else math.ceil(low),
            None if high is None else math.floor(high),
        )

    def met(self, value: float | None, recorded: float) -> bool:
        """Whether the value is within the limits."""
        low, high = self.limits(recorded)
        return (
            value is not None and (low is None or value >= low) and (high is None or value <= high)
        )


@dataclass(frozen=True, slots=True)
class ExerciseSection:
    """A section with a task whose result is checked."""

    title: str
    text: str
    script: Script
    calculator: str  # the sliders next to the picture; empty if the user works on the board
    goals: tuple[Goal, ...]  # all must be met
    explanation: str


@dataclass(frozen=True, slots=True)
class ReadingSection:
    """The last section, without a script: references to the code and the papers."""

    title: str
    text: str


Section: TypeAlias = StepSection | QuestionSection | ExerciseSection | ReadingSection


@dataclass(frozen=True, slots=True)
class Lesson:
    """One lesson."""

    id: str
    title: str
    summary: str
    run: str  # file of the bundled run that the lesson uses
    page: str  # the page of the app with more on the topic
    introduction: str
    sections: tuple[Section, ...]
    hides: tuple[Topic, ...] = ()  # what the board does not show, because it is introduced later

    @property
    def question(self) -> QuestionSection:
        """The lesson's question; `eab.lessons.lesson_files` ensures that there is one."""
        return next(section for section in self.sections if isinstance(section, QuestionSection))

    @property
    def exercise(self) -> ExerciseSection:
        """The lesson's exercise; `eab.lessons.lesson_files` ensures that there is one."""
        return next(section for section in self.sections if isinstance(section, ExerciseSection))

    @property
    def minutes(self) -> int:
        """About how long the lesson takes, at 150 words a minute."""
        texts = [self.introduction, *(section.text for section in self.sections)]
        return 2 + round(sum(len(text.split()) for text in texts) / 150)

    def covers(self, stage: int, answered: bool) -> bool:
        """Whether the stage must hide its picture until the question is answered."""
        asked_at = self.sections.index(self.question) + 1
        return not answered and (stage == asked_at or (stage == 0 and asked_at == 1))

    def script_at(self, stage: int) -> Script:
        """What a stage shows; introduction (0) and reading section repeat the nearest chart."""
        if stage == 0:
            return Script(picture=_script(self.sections[0]).picture)
        section = self.sections[stage - 1]
        if isinstance(section, ReadingSection):
            return Script(picture=_script(self.sections[stage - 2]).picture)
        return section.script


def _script(section: Section) -> Script:
    return Script() if isinstance(section, ReadingSection) else section.script


@dataclass(frozen=True, slots=True)
class Guide:
    """What the board should show next."""

    id: str  # the board follows each id only once
    cursor: int | None = None  # step at which to put the cursor; None leaves it in place
    # Path and index of the token to select; None selects nothing
    token: tuple[int, int] | None = None
    drawer: Drawer | None = None  # what to open over the charts if no token is selected
    highlight: str = ""  # the panel to frame; "KV cache", or empty
    hides: tuple[Topic, ...] = ()  # what the lesson has not introduced yet

    def as_message(self) -> dict[str, Any]:
        """The guide as JSON values; see Guide in eab/board/static/types.d.ts."""
        return {
            "id": self.id,
            "cursor": self.cursor,
            "token": None if self.token is None else list(self.token),
            "drawer": self.drawer,
            "highlight": self.highlight,
            "hides": list(self.hides),
        }


def guide(script: Script, run: RunState, guide_id: str, hides: tuple[Topic, ...] = ()) -> Guide:
    """What the board shows, once per `guide_id`: the nearest step or token in the run."""
    cursor = None if script.cursor is None else step_of(script.cursor, run)
    token = None if script.select is None else token_of(script.select, run)
    drawer = None if token is not None else script.show
    return Guide(guide_id, cursor, token, drawer, script.highlight, hides)


def step_of(place: Place, run: RunState) -> int:
    """The step at this place."""
    last = max(0, len(run.steps) - 1)
    if isinstance(place, int):
        return min(place, last)
    if place == "first step":
        return 0
    if place == "last step":
        return last
    if place == "most paths":
        return run.peak_step
    token = first_fork(run) if place == "first fork" else highest_entropy(run)
    return last if token is None else run.paths[token[0]].tokens[token[1]].step


def token_of(place: Place | tuple[int, ...], run: RunState) -> tuple[int, int] | None:
    """Path and index of the token at this place; None in a run without tokens."""
    if isinstance(place, tuple):
        path = run.paths[min(place[0], len(run.paths) - 1)]
        return (path.id, min(place[1], len(path.tokens) - 1)) if path.tokens else None
    if place == "first fork":
        return first_fork(run) or highest_entropy(run)
    if place == "highest entropy":
        return highest_entropy(run)
    step = step_of(place, run)
    return next(
        (
            (path.id, step - path.born)
            for path in sorted(run.paths, key=lambda path: -path.weight)
            if path.tokens and path.born <= step < path.born + len(path.tokens)
        ),
        None,
    )
