"""The explorer in a notebook.

`eab.show(run)` replays a run, `eab.explore(model, prompt)` starts one and shows it live, and
`eab.show_lesson("forks")` shows a lesson.
"""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from eab.api.arguments import Model, Prompt
from eab.api.branching import EntropyAdaptiveBranching
from eab.api.run import Run, RunLike, as_run
from eab.api.settings import Settings
from eab.engine.loop import stop_when
from eab.errors import LessonError, NotebookError, need

if TYPE_CHECKING:
    from eab.share.lesson_widget import LessonWidget
    from eab.share.widget import BoardWidget, LiveWidget


def show(run: RunLike) -> "BoardWidget":
    """A widget that replays a run, given as a Run, as events or as a run file.

        eab.show("coin.eab")

    Raises:
        NotebookError: anywidget is not installed.
        RecordError: `run` is not a run.
    """
    _need("anywidget")
    from eab.share.widget import BoardWidget

    return BoardWidget(as_run(run))


def explore(model: Model, prompt: Prompt, **settings: Unpack[Settings]) -> "LiveWidget[Run]":
    """Start a run and show it live, with a button to stop it.

        eab.explore("embedded", "Once upon a time", max_new_tokens=12)

    With a loaded model (`eab.load_model("embedded")`), the run starts immediately. The widget's
    `.wait()` returns the finished `Run`.

    Args:
        model, prompt, settings: As for `EntropyAdaptiveBranching` and its `generate`.

    Raises:
        NotebookError: anywidget is not installed.
        ModelError, PromptError, ConfigError: The model, the prompt or a setting cannot be used.
    """
    _need("anywidget")
    from eab.share.widget import LiveWidget

    stop = threading.Event()
    events = EntropyAdaptiveBranching(model).stream(prompt, **settings)
    return LiveWidget(stop_when(events, stop.is_set), stop, Run)


def show_lesson(lesson: Path | str, run: RunLike | None = None) -> "LessonWidget":
    """A lesson of the Learn page, given by its name or the path of a lesson file.

        eab.show_lesson("forks")

    If you pass a finished run of your own, the lesson shows it instead of the recorded one.

    Raises:
        NotebookError: Packages of the extra `notebook` are not installed.
        LessonError: There is no such lesson, or the file breaks a rule.
        RecordError: The run has not started.
    """
    _need("anywidget", "ipywidgets", "markdown_it", "plotly")
    from eab.lessons import bundled_runs, lesson_files
    from eab.share.lesson_widget import LessonWidget

    if not isinstance(lesson, str | Path):
        raise LessonError(f"the lesson is a {type(lesson).__name__}; give its name, such as forks")
    is_file = Path(lesson).suffix == ".md"
    loaded_lesson = lesson_files.load(Path(lesson)) if is_file else lesson_files.named(str(lesson))
    shown = bundled_runs.events_of(bundled_runs.named(loaded_lesson.run)) if run is None else run
    return LessonWidget(loaded_lesson, as_run(shown).events)


def _need(*packages: str) -> None:
    without = ". Without it, eab.save_html(run, 'run.html') writes a page for any browser"
    need("notebook", *packages, error=NotebookError, more=without)
