"""The engine's side of the app: runs that a worker thread makes and pages watch. Knows nothing of Streamlit.

One thread takes one step of each run in turn, so several people at once all see their trees grow, and a run that
breaks ends alone. Models load in threads of their own. A run that nobody watches any more is stopped.
"""

import atexit
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar

from app.model_shelf import ModelShelf
from eab.bmc.results import Experiment, Progressed, Report, ReportEvent
from eab.comparison import Comparison
from eab.config import BranchingConfig
from eab.errors import EabError
from eab.events import Event, Probed, RunEnded, StepTimed
from eab.run import Run

if TYPE_CHECKING:
    from eab.models.base import LanguageModel

UNWATCHED_SECONDS: Final = 120.0  # browsers slow the timers of hidden tabs down to one a minute
KEPT_RUNS: Final = 100
AT_ONCE: Final = 8  # runs that take turns; the others wait for their turn to begin

LiveStatus = Literal["loading", "running", "ended", "failed"]
State = TypeVar("State", Run, Comparison, Report)
Make: TypeAlias = "Callable[[LanguageModel, str, BranchingConfig], Iterator[Any]]"


class Live(Generic[State]):
    """A run, a comparison of several, or a measurement, in the making: `make` gives the events, `state` folds them.

    Read `state` and `events` while holding `lock`; `message` says why it failed.
    """

    def __init__(self, prompt: str, config: BranchingConfig, model_name: str, state: State, make: Make) -> None:
        self.id = secrets.token_urlsafe(12)  # unguessable: it is the only key to the run
        self.prompt, self.config, self.model_name = prompt, config, model_name
        self.make = make
        self.lock = threading.Lock()
        self.events: list[Any] = []  # of what `state` folds
        self.state: State = state
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
        """End the run at its next step, or at once while its model is loading; what it has stays."""
        self._stop.set()
        with self.lock:
            if self.status == "loading":
                self._take(RunEnded(0, "stopped"))

    def begin(self) -> bool:
        """From `loading` to `running`, unless it ended meanwhile."""
        with self.lock:
            if self.status == "loading":
                self.status = "running"
            return self.active

    def watch(self) -> None:
        """Say that somebody looks at it."""
        self._watched_at = time.monotonic()

    def add(self, event: Any) -> None:
        """Take one more event in."""
        with self.lock:
            self._take(event)

    def _take(self, event: Any) -> None:
        self.events.append(event)
        self.state.apply(event)
        if self.state.ended is not None:
            self.status = "ended"

    def fail(self, message: str) -> None:
        """End it with an explanation; the events so far stay."""
        with self.lock:
            if self.active:
                self.message, self.status = message, "failed"


LiveRun: TypeAlias = Live[Run]
LiveComparison: TypeAlias = Live[Comparison]
LiveReport: TypeAlias = Live[Report]


class Worker:
    """Makes the runs of all sessions. Start one per process."""

    def __init__(self, models: ModelShelf) -> None:
        self._models = models
        self._books = threading.Lock()
        self._runs: OrderedDict[str, Live[Any]] = OrderedDict()
        self._ready: list[tuple[Live[Any], Iterator[Any]]] = []
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="eab-worker", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a thread inside torch must not outlive the interpreter

    def start(self, prompt: str, config: BranchingConfig, model_name: str) -> LiveRun:
        """Begin a run; it appears at once, in state `loading`."""
        return self._begin(Live(prompt, config, model_name, Run(), _generate))

    def compare(self, prompt: str, config: BranchingConfig, model_name: str) -> LiveComparison:
        """Begin a run under each cache, one after the other; it takes its turns like any run."""
        return self._begin(Live(prompt, config, model_name, Comparison(), _compare))

    def measure(self, experiment: Experiment, rows: int, config: BranchingConfig, model_name: str) -> LiveReport:
        """Begin a BMC experiment with runs of so many rows; it takes its turns like any run."""

        def make(model: "LanguageModel", prompt: str, config: BranchingConfig) -> Iterator[ReportEvent]:
            from eab.bmc.experiments import measure

            return measure(experiment, model, rows)

        return self._begin(Live(experiment, config, model_name, Report(), make))

    def _begin(self, run: Live[State]) -> Live[State]:
        with self._books:
            ended = [known.id for known in self._runs.values() if not known.active]
            for run_id in ended[: max(0, len(self._runs) - KEPT_RUNS + 1)]:
                del self._runs[run_id]
            self._runs[run.id] = run
        threading.Thread(target=self._prepare, args=(run,), name="eab-loading", daemon=True).start()
        return run

    def close(self) -> None:
        """Stop all runs and end the thread."""
        with self._books:
            for run in self._runs.values():
                run.stop()
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def ahead_of(self, run: Live[Any]) -> int:
        """How many runs must end before this one takes its first turn."""
        with self._wake:
            place = next((index for index, (ready, _) in enumerate(self._ready) if ready is run), 0)
        return max(0, place - AT_ONCE + 1)

    def warm_up(self, model_name: str, after: float) -> None:
        """Load a model in the background, so that the first run begins at once."""
        timer = threading.Timer(after, self._warm_up_now, (model_name,))
        timer.daemon = True
        timer.start()

    def _warm_up_now(self, model_name: str) -> None:
        with suppress(EabError):  # whoever runs it will be told
            self._models.get(model_name)

    def find(self, run_id: str) -> LiveRun | None:
        """The run of this id, unless it is forgotten."""
        with self._books:
            run = self._runs.get(run_id)
        return run if run is not None and isinstance(run.state, Run) else None

    def find_comparison(self, run_id: str) -> LiveComparison | None:
        """The comparison of this id, unless it is forgotten."""
        with self._books:
            run = self._runs.get(run_id)
        return run if run is not None and isinstance(run.state, Comparison) else None

    def _prepare(self, run: Live[Any]) -> None:
        try:
            model = self._models.get(run.model_name)
            from eab.engine import until

            events = until(run.make(model, run.prompt, run.config), lambda: run.stopping)
        except Exception as error:
            run.fail(_explain(error))
            return
        if run.begin():
            with self._wake:
                self._ready.append((run, events))
                self._wake.notify()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._closed or bool(self._ready))
                if self._closed:
                    return
                waiting = self._ready[AT_ONCE:]
                turn = self._ready[:AT_ONCE] + [entry for entry in waiting if entry[0].stopping]  # Stop needs no turn
            done = [entry for entry in turn if not _one_step(*entry)]
            with self._wake:
                self._ready = [entry for entry in self._ready if entry not in done]


def _generate(model: "LanguageModel", prompt: str, config: BranchingConfig) -> Iterator[Event]:
    from eab.engine import generate

    return generate(model, prompt, config)


def _compare(model: "LanguageModel", prompt: str, config: BranchingConfig) -> Iterator[Event]:
    from eab.compare import compare

    return compare(model, prompt, config)


def _one_step(run: Live[Any], events: Iterator[Any]) -> bool:
    """Take the run one step on; whether there is more to come."""
    try:
        for event in events:
            run.add(event)
            if isinstance(event, StepTimed | Probed | Progressed):
                return True
    except Exception as error:
        run.fail(_explain(error))
    return False


def _explain(error: Exception) -> str:
    if isinstance(error, EabError):
        return str(error)
    return f"the run broke ({type(error).__name__}: {error}). What it had is kept; try other settings"
