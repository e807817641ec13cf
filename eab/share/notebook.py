"""The explorer in a notebook.

`eab.show(run)` replays a run; `eab.explore(model, prompt)` makes one and shows it live.
"""

import threading
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

from eab.errors import NotebookError
from eab.events import Event
from eab.run import Run, fold

if TYPE_CHECKING:
    from eab.share.widget import BoardWidget, LiveWidget


def show(run: Run | Iterable[Event]) -> "BoardWidget":
    """A widget that replays the run.

    Raises:
        NotebookError: anywidget is not installed.
    """
    _need_anywidget()
    from eab.share.widget import BoardWidget

    return BoardWidget(run if isinstance(run, Run) else fold(run))


def explore(model: Any, prompt: str, **settings: Any) -> "LiveWidget":
    """Start a run, and show it while it is made, with a button to stop it.

    Args:
        model: As in EntropyAdaptiveBranching. A model that is loaded already
            (`eab.load_model("embedded")`) starts at once.
        prompt: The text to continue.
        settings: As in EntropyAdaptiveBranching.

    Returns:
        The widget; its `.wait()` returns the finished run.

    Raises:
        NotebookError: anywidget is not installed.
        PromptError: The prompt cannot be used.
        ConfigError: A setting cannot be used.
    """
    _need_anywidget()
    from eab.api import EntropyAdaptiveBranching
    from eab.engine.loop import stop_when
    from eab.share.widget import LiveWidget

    stop = threading.Event()
    events = stop_when(EntropyAdaptiveBranching(model, **settings).stream(prompt), stop.is_set)
    first = next(events)  # here, so that a bad prompt raises its error in this cell
    return LiveWidget(chain([first], events), stop)


def _need_anywidget() -> None:
    try:
        import anywidget  # noqa: F401
    except ImportError as error:
        raise NotebookError(
            "notebooks need anywidget, which is not installed: pip install anywidget. Without it, "
            "eab.save_html(run, 'run.html') writes a page that any browser opens"
        ) from error
