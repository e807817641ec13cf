"""The explorer in a notebook: `eab.show(run)` replays a run, `eab.explore(model, prompt)` makes
one, live.
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
    """A widget that replays the run. NotebookError if anywidget is not installed."""
    _need_anywidget()
    from eab.share.widget import BoardWidget

    return BoardWidget(run if isinstance(run, Run) else fold(run))


def explore(model: Any, prompt: str, **settings: Any) -> "LiveWidget":
    """A widget that shows the run while it is made, with a Stop; `.wait()` gives the finished run.

    model and settings: as in EntropyAdaptiveBranching. A model that is loaded already
    (`eab.load_model("embedded")`) starts at once. NotebookError if anywidget is not installed,
    PromptError and ConfigError for bad input.
    """
    _need_anywidget()
    from eab.api import EntropyAdaptiveBranching
    from eab.engine.loop import stop_when
    from eab.share.widget import LiveWidget

    stop = threading.Event()
    events = stop_when(EntropyAdaptiveBranching(model, **settings).stream(prompt), stop.is_set)
    first = next(events)  # here, so that a bad prompt is told in this cell
    return LiveWidget(chain([first], events), stop)


def _need_anywidget() -> None:
    try:
        import anywidget  # noqa: F401
    except ImportError as error:
        raise NotebookError(
            "notebooks need anywidget, which is not installed: pip install anywidget. Without it, "
            "eab.save_html(run, 'run.html') writes a page that any browser opens"
        ) from error
