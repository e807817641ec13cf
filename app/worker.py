"""The engine's side of the app: runs that a worker thread makes and pages watch. Knows nothing of Streamlit.

One thread takes one step of each run in turn, so several people at once all see their trees grow, and a run that
breaks ends alone. Models load in threads of their own. A run that nobody watches any more is stopped.
"""

import gc
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal

from eab.config import BranchingConfig
from eab.errors import EabError
from eab.events import Event, Probed, RunEnded, StepTimed
from eab.run import Run

if TYPE_CHECKING:
    from eab.models.base import LanguageModel

UNWATCHED_SECONDS: Final = 120.0  # browsers slow the timers of hidden tabs down to one a minute
KEPT_RUNS: Final = 100
KEPT_MODELS: Final = 2

LiveStatus = Literal["loading", "running", "ended", "failed"]


class LiveRun:
    """A run in the making. Read `state` and `events` while holding `lock`; `message` says why it failed."""

    def __init__(self, prompt: str, config: BranchingConfig, model_name: str) -> None:
        self.id = secrets.token_urlsafe(12)  # unguessable: it is the only key to the run
        self.prompt, self.config, self.model_name = prompt, config, model_name
        self.lock = threading.Lock()
        self.events: list[Event] = []
        self.state = Run()
        self.status: LiveStatus = "loading"
        self.message = ""
        self._stop = threading.Event()
        self._watched_at = time.monotonic()

    @property
    def active(self) -> bool:
        """Whether it still changes."""
        return self.status in ("loading", "running")

    @property
    def stopped(self) -> bool:
        """Whether it ended before its time."""
        return self.state.ended is not None and self.state.ended.reason == "stopped"

    @property
    def stopping(self) -> bool:
        """Whether someone asked it to stop, or nobody watches it any more."""
        return self._stop.is_set() or time.monotonic() - self._watched_at > UNWATCHED_SECONDS

    def stop(self) -> None:
        """End the run at its next step; what it has stays."""
        self._stop.set()

    def watch(self) -> None:
        """Say that somebody looks at it."""
        self._watched_at = time.monotonic()

    def add(self, event: Event) -> None:
        """Take one more event in."""
        with self.lock:
            self.events.append(event)
            self.state.apply(event)
            if isinstance(event, RunEnded):
                self.status = "ended"

    def fail(self, message: str) -> None:
        """End it with an explanation; the events so far stay."""
        with self.lock:
            self.message, self.status = message, "failed"


class Worker:
    """Makes the runs of all sessions. Start one per process."""

    def __init__(self, load: "Callable[[str], LanguageModel] | None" = None) -> None:
        self._load = load or _load_model
        self._runs: OrderedDict[str, LiveRun] = OrderedDict()
        self._models: OrderedDict[str, LanguageModel] = OrderedDict()
        self._loading = threading.Lock()
        self._ready: list[tuple[LiveRun, Iterator[Event]]] = []
        self._wake = threading.Condition()
        threading.Thread(target=self._work, name="eab-worker", daemon=True).start()

    def start(self, prompt: str, config: BranchingConfig, model_name: str) -> LiveRun:
        """Begin a run; it appears at once, in state `loading`."""
        run = LiveRun(prompt, config, model_name)
        self._forget_old_runs()
        self._runs[run.id] = run
        threading.Thread(target=self._prepare, args=(run,), name="eab-loading", daemon=True).start()
        return run

    def warm_up(self, model_name: str, after: float) -> None:
        """Load a model in the background, so that the first run begins at once."""
        timer = threading.Timer(after, self._warm_up_now, (model_name,))
        timer.daemon = True
        timer.start()

    def _warm_up_now(self, model_name: str) -> None:
        with suppress(EabError):  # whoever runs it will be told
            self._model(model_name)

    def find(self, run_id: str) -> LiveRun | None:
        """The run of this id, unless it is forgotten."""
        return self._runs.get(run_id)

    def _forget_old_runs(self) -> None:
        ended = [run.id for run in self._runs.values() if not run.active]
        for run_id in ended[: max(0, len(self._runs) - KEPT_RUNS + 1)]:
            del self._runs[run_id]

    def _prepare(self, run: LiveRun) -> None:
        try:
            model = self._model(run.model_name)
            from eab.engine import generate, until

            events = until(generate(model, run.prompt, run.config), lambda: run.stopping)
        except Exception as error:
            run.fail(_explain(error))
            return
        if run.stopping:
            run.add(RunEnded(0, "stopped"))
            return
        run.status = "running"
        with self._wake:
            self._ready.append((run, events))
            self._wake.notify()

    def _model(self, name: str) -> "LanguageModel":
        with self._loading:  # two sessions must not load the same model twice
            if name not in self._models:
                while len(self._models) >= KEPT_MODELS:
                    self._models.popitem(last=False)
                self._models[name] = self._load(name)
                gc.collect()
                gc.freeze()  # torch's modules need no further look by the collector
            self._models.move_to_end(name)
            return self._models[name]

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: bool(self._ready))
                turn = list(self._ready)
            done = [entry for entry in turn if not _one_step(*entry)]
            with self._wake:
                self._ready = [entry for entry in self._ready if entry not in done]


def _one_step(run: LiveRun, events: Iterator[Event]) -> bool:
    """Take the run one step on; whether there is more to come."""
    try:
        for event in events:
            run.add(event)
            if isinstance(event, StepTimed | Probed):
                return True
    except Exception as error:
        run.fail(_explain(error))
    return False


def _explain(error: Exception) -> str:
    if isinstance(error, EabError):
        return str(error)
    return f"the run broke ({type(error).__name__}: {error}). What it had is kept; try other settings"


def _load_model(name: str) -> "LanguageModel":
    import torch

    from eab.models.loading import load_model

    torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))  # leave a core to the page
    return load_model(name)
