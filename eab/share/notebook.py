"""The explorer in a notebook.

`eab.show(run)` replays a run; `eab.explore(model, prompt)` makes one and shows it live;
`eab.show_lesson("forks")` teaches.
"""

import threading
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eab.errors import NotebookError
from eab.events import Event
from eab.run import Run, fold

if TYPE_CHECKING:
    from eab.share.lesson_widget import LessonWidget
    from eab.share.widget import BoardWidget, LiveWidget


def show(run: Run | Iterable[Event]) -> "BoardWidget":
    """A widget that replays the run; NotebookError if anywidget is not installed."""
    _need_anywidget()
    from eab.share.widget import BoardWidget

    return BoardWidget(run if isinstance(run, Run) else fold(run))


def explore(model: Any, prompt: str, **settings: Any) -> "LiveWidget":
    """Start a run, and show it while it is made, with a button to stop it.

    Arguments are those of EntropyAdaptiveBranching; a loaded model (`eab.load_model("embedded")`)
    starts at once. The widget's `.wait()` returns the finished run.

    Raises:
        NotebookError: anywidget is not installed.
        PromptError, ConfigError: The prompt or a setting cannot be used.
    """
    _need_anywidget()
    from eab.api import EntropyAdaptiveBranching
    from eab.engine.loop import stop_when
    from eab.share.widget import LiveWidget

    stop = threading.Event()
    events = stop_when(EntropyAdaptiveBranching(model, **settings).stream(prompt), stop.is_set)
    first = next(events)  # here, so that a bad prompt raises its error in this cell
    return LiveWidget(chain([first], events), stop)


def show_lesson(lesson: Path | str, events: Iterable[Event] | None = None) -> "LessonWidget":
    """A lesson of the page Learn, by its name (`forks`) or the path of a lesson file.

    With events of your own finished run, the lesson shows them instead of its recorded run.

    Raises:
        NotebookError: anywidget is not installed.
        LessonError: There is no such lesson, or the file breaks a rule.
        RecordError: The run has not started.
    """
    _need_anywidget()
    from eab.lessons import bundled, bundled_runs, reading
    from eab.share.lesson_widget import LessonWidget

    is_file = Path(lesson).suffix == ".md"
    found = reading.load(Path(lesson)) if is_file else bundled.named(str(lesson))
    if events is None:
        events = bundled_runs.events_of(bundled_runs.named(found.run))
    return LessonWidget(found, list(events))


def _need_anywidget() -> None:
    try:
        import anywidget  # noqa: F401
    except ImportError as error:
        raise NotebookError(
            "notebooks require anywidget, which is not installed: pip install anywidget. Without "
            "it, eab.save_html(run, 'run.html') writes a page for any browser"
        ) from error
