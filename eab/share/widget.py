"""The board as a notebook widget, built with anywidget; `eab.api.notebook` imports it when needed.

It receives the same messages as the app's board and sends requests: for messages that it missed,
and to stop the run. From the events of a finished run it makes those for another threshold or
growth step itself, so a saved page can do that, too.

It comes with a still of itself, for readers without a kernel: a saved notebook, its preview on
GitHub, or a page made from it. If an output has both a widget and a still, JupyterLab shows only
the widget, and "model not found" if the widget is gone. So the still is an output of its own,
before the widget's output. The widget hides the still while it is alive, and the still hides the
error.
"""

import atexit
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar
from uuid import uuid4

import anywidget
import ipywidgets as widgets
import traitlets
from IPython.core.getipython import get_ipython
from IPython.display import display

from eab.board import javascript, stylesheet
from eab.board.messages import Feed
from eab.board.still import picture, tree_svg
from eab.figures.captions import tree_sentence
from eab.formatting import counted
from eab.run import RunFold, RunState
from eab.run.events import Event, StepTimed
from eab.share.exports import packed_events

WIDGET: Final = "application/vnd.jupyter.widget-view+json"
_MARK: Final = "data-eab-still"
_IN_JUPYTER: Final = ".jp-OutputArea-child"  # an output; the still is its grandchild
_HIDES_ERROR: Final = (
    f"{_IN_JUPYTER}:has(> * > [{_MARK}]) + {_IN_JUPYTER} > .jupyter-widgets:not(:has(*))"
)


class WithStill(widgets.DOMWidget):  # type: ignore[misc]  # it has no types
    """A widget with a still picture or text for places where the widget cannot be live."""

    hides_still = traitlets.Unicode().tag(sync=True)  # CSS, for a child that the page shows

    def __init__(self, *args: Any, **values: Any) -> None:
        self._still_id = uuid4().hex
        self._displayed = False
        is_it = f'[{_MARK}="{self._still_id}"]'
        style = f"{is_it}, {_IN_JUPYTER}:has(> * > {is_it}) {{ display: none }}"
        super().__init__(*args, hides_still=style, **values)

    def words(self) -> str:
        """The still as text."""
        raise NotImplementedError

    def _still(self) -> str:
        """The still as HTML."""
        raise NotImplementedError

    def _ipython_display_(self) -> None:
        self._publish_still(update=False)
        bundle = self._repr_mimebundle_() or {}
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        display({WIDGET: data[WIDGET]}, raw=True, metadata=metadata)  # type: ignore[no-untyped-call]
        self._displayed = True

    def _publish_still(self, update: bool) -> None:
        """Display the still, or replace it wherever it is already displayed."""
        html = (
            f'<div {_MARK}="{self._still_id}"><style>{_HIDES_ERROR} {{ display: none }}</style>'
            f"{self._still()}<p><em>Run this cell to see it live.</em></p></div>"
        )
        data = {"text/html": html, "text/plain": self.words()}
        display(data, raw=True, display_id=self._still_id, update=update)  # type: ignore[no-untyped-call]

    def _update_still(self) -> None:
        # In a terminal, the update would be printed between the user's lines.
        if self._displayed and hasattr(get_ipython(), "kernel"):
            self._publish_still(update=True)


FinishedRun = TypeVar("FinishedRun")
SEND_SECONDS: Final = 0.25  # minimum time between two messages of a live run


_SHARED: Final = """\
export default {
  async render({ model, el, host }) {
    const { exports } = await host.getWidget(model.get("code"));
    return exports.render({ model, el });
  },
};
"""


class _Code(anywidget.AnyWidget):
    """The board's JavaScript, shared by all boards of a notebook; it is not displayed."""

    _esm = javascript("widget")


class BoardWidget(WithStill, anywidget.AnyWidget):
    """A finished run, to replay and inspect; `message` is the last message sent to the board."""

    _esm = _SHARED
    _css = stylesheet()
    code = anywidget.WidgetTrait().tag(sync=True)
    message = traitlets.Dict().tag(sync=True)
    recorded = traitlets.Unicode("").tag(sync=True)  # the events of a finished run, packed
    status = traitlets.Unicode("").tag(sync=True)
    running = traitlets.Bool(False).tag(sync=True)

    def __init__(self, run: RunState | None, autoplay: bool = True) -> None:
        self._run = run
        self._feed = Feed()
        message = self._feed.message(run, "notebook", "replay", autoplay)
        recorded = packed_events(run) if run is not None else ""
        super().__init__(message=message, recorded=recorded, code=_code())

    @property
    def run(self) -> RunState | None:
        """The run that is shown; None if it has not started."""
        return self._run

    def words(self) -> str:
        """A sentence that describes the tree."""
        run = self.run
        return tree_sentence(run) if run is not None else "The run has not started yet."

    def _still(self) -> str:
        run = self.run
        if run is None or not run.steps:
            return f"<p>{self.words()}</p>"
        return picture(tree_svg(run), self.words())


class LiveWidget(BoardWidget, Generic[FinishedRun]):
    """A run that is generated in its own thread. It ends at its next step when it is stopped or
    closed, and when the cell that started it is rerun. The browser stops it when its last board
    leaves the page, for example because its cell is deleted.

    Attributes:
        events: The events so far, for `eab.save`.
    """

    def __init__(
        self,
        events: Iterator[Event],
        stop: threading.Event,
        made: Callable[[list[Event]], FinishedRun],
    ) -> None:
        self._made = made
        self.events: list[Event] = []
        self._stop = stop
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._fold = RunFold()
        super().__init__(None, autoplay=False)
        self.on_msg(self._on_request)
        self.running = True
        self._thread = threading.Thread(
            target=self._work, args=(events,), name="eab-notebook", daemon=True
        )
        atexit.register(self._leave)  # a thread inside torch must not outlive the interpreter
        self._cell, self._execution = _executing()
        for other in [*_GROWING]:
            if self._cell and other._cell == self._cell and other._execution != self._execution:
                other.stop()
        _GROWING.append(self)
        self._thread.start()

    def _ipython_display_(self) -> None:
        with self._lock:  # the still of the finished run must come after this one
            super()._ipython_display_()

    @property
    def run(self) -> RunState | None:
        """The run so far; None if it has not started."""
        return self._fold.run

    def stop(self) -> None:
        """Stop the run at its next step; what has been generated is kept."""
        self._stop.set()

    def close(self) -> None:
        """Remove the board and stop the run."""
        self.stop()
        super().close()

    def wait(self) -> FinishedRun:
        """Wait for the run and return it, or raise its error; a keyboard interrupt stops it."""
        try:
            self._thread.join()
        except KeyboardInterrupt:
            self.stop()
            self._thread.join()
        # Send again: if a program runs the notebook, updates sent between two cells are lost.
        self.send_state()
        self._update_still()
        if self._error is not None:
            raise self._error
        self._fold.started_run().raise_if_failed()
        return self._made(self.events)

    def _work(self, events: Iterator[Event]) -> None:
        sent = 0.0
        try:
            for event in events:
                with self._lock:
                    self.events.append(event)
                    self._fold.apply(event)
                if isinstance(event, StepTimed) and time.monotonic() - sent >= SEND_SECONDS:
                    sent = time.monotonic()
                    self._send_status(self._progress())
        except Exception as error:  # any error is shown in the notebook
            self._error = error
        self._feed.resend()  # the last message is complete, because a saved notebook keeps it
        self.running = False
        self.recorded = packed_events(self.run) if self.run is not None else ""
        self._send_status(self._ending())
        with self._lock:
            self._update_still()
        atexit.unregister(self._leave)
        _GROWING.remove(self)

    def _send_status(self, status: str) -> None:
        with self._lock:
            message = self._feed.message(self.run, "notebook", "live")
        self.message, self.status = message, status

    def _progress(self) -> str:
        return self._fold.progress.words

    def _ending(self) -> str:
        if self._error is not None:
            return f"The run failed: {self._error}"
        ended = self._fold.ended
        if ended is not None and ended.reason == "failed":
            return ended.message
        steps = counted(len(self.run.steps) if self.run else 0, "step")
        return f"{'Stopped' if self._stop.is_set() else 'Done'} after {steps}"

    def _on_request(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        if content.get("request") == "stop":
            self.stop()
        elif content.get("request") == "missed":
            self._feed.resend()  # complete, because a saved notebook keeps it
            if not self.running:
                self._send_status(self.status)

    def _leave(self) -> None:
        self.stop()
        self._thread.join(timeout=10)


def _code() -> _Code:
    """The notebook's shared code widget; a new one if `Widget.close_all()` has closed it."""
    if not _CODE or _CODE[-1].comm is None:
        _CODE.append(_Code())
    return _CODE[-1]


_CODE: Final[list[_Code]] = []
_GROWING: Final[list[LiveWidget[Any]]] = []


def _executing() -> tuple[str, str]:
    """The id of the notebook cell being executed and of this execution; "" if there is none."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    message: dict[str, Any] = shell.get_parent() if hasattr(shell, "get_parent") else {}
    cell = message.get("metadata", {}).get("cellId", "")
    return cell, message.get("header", {}).get("msg_id", "")
