"""The board as a widget for notebooks, by anywidget; `eab.api.notebook` imports it when needed.

It is sent the messages of the app's board, and sends back two requests: for a keyframe, which is a
message with the whole run, and to stop the run.
"""

import atexit
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

import anywidget
import traitlets

from eab.board import bundle
from eab.board.messages import Feed
from eab.board.still import tree_svg
from eab.events import Event, StepTimed
from eab.figures.captions import tree_sentence
from eab.formatting import counted
from eab.run import RunFold, RunState

FinishedRun = TypeVar("FinishedRun")
SEND_SECONDS: Final = 0.25  # at least, between two messages of a live run


class BoardWidget(anywidget.AnyWidget):
    """A finished run, to replay and inspect; `message` is what the board is sent."""

    _esm = bundle.javascript("widget")
    _css = bundle.stylesheet()
    message = traitlets.Dict().tag(sync=True)
    status = traitlets.Unicode("").tag(sync=True)
    running = traitlets.Bool(False).tag(sync=True)

    def __init__(self, run: RunState | None, autoplay: bool = True) -> None:
        self._run = run
        super().__init__(message=Feed().message(run, "notebook", "replay", autoplay))

    @property
    def run(self) -> RunState | None:
        """The run on show; None while it has not started."""
        return self._run

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The widget, and a still picture for viewers that cannot show widgets."""
        widget, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        run = self.run
        still = {"image/svg+xml": tree_svg(run)} if run is not None and run.steps else {}
        words = tree_sentence(run) if run is not None else "The run has not started yet."
        return {**widget, **still, "text/plain": words}, metadata


class LiveWidget(BoardWidget, Generic[FinishedRun]):
    """A run that is generated in its own thread.

    Attributes:
        events: Those so far, for `eab.save`.
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
        self._feed = Feed()
        self._error: Exception | None = None
        self._fold = RunFold()
        super().__init__(None, autoplay=False)
        self.on_msg(self._on_request)
        self.running = True
        self._thread = threading.Thread(
            target=self._work, args=(events,), name="eab-notebook", daemon=True
        )
        atexit.register(self._leave)  # a thread inside torch must not outlive the interpreter
        self._thread.start()

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        with self._lock:
            return super()._repr_mimebundle_(**kwargs)

    @property
    def run(self) -> RunState | None:
        """The run so far; None while it has not started."""
        return self._fold.run

    def stop(self) -> None:
        """Stop the run at its next step; what was generated so far stays."""
        self._stop.set()

    def wait(self) -> FinishedRun:
        """Wait for the run and return it, or raise its error; an interrupt stops it."""
        try:
            self._thread.join()
        except KeyboardInterrupt:
            self.stop()
            self._thread.join()
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
        self._feed.request_keyframe()  # the last message is whole: a saved notebook keeps it
        self.running = False
        self._send_status(self._ending())
        atexit.unregister(self._leave)

    def _send_status(self, status: str) -> None:
        with self._lock:
            message = self._feed.message(self.run, "notebook", "live")
        self.message, self.status = message, status

    def _progress(self) -> str:
        run = self.run
        if run is None:
            return f"Probing the prompt: step {len(self._fold.probe)}"
        return f"Step {len(run.steps)} of {run.started.config.max_new_tokens}"

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
        elif content.get("request") == "keyframe":
            self._feed.request_keyframe()
            if not self.running:
                self._send_status(self.status)

    def _leave(self) -> None:
        self.stop()
        self._thread.join(timeout=10)
