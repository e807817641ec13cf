"""The engine's side of the app: runs that a worker thread makes and pages watch. Knows nothing of
Streamlit.

One thread takes one step of each run in turn, so several people at once all see their trees grow,
and a run that breaks ends alone. More runs than AT_ONCE wait in line. Models load in threads of
their own. A run that nobody watches any more is stopped.
"""

import atexit
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from app.server.live_run import Live, LiveReport, LiveRun, LiveSweep, State
from app.server.model_cache import DRAFT, ModelCache
from app.server.queue import QueuePosition, RunQueue
from app.server.registry import RunRegistry
from eab.analysis.sweep import Sweep
from eab.bmc.results import Experiment, Report, ReportEvent
from eab.config import BranchingConfig
from eab.errors import EabError
from eab.events import Event, RunStarted
from eab.run import RunFold

if TYPE_CHECKING:
    from eab.models.base import LanguageModel

AT_ONCE: Final = 8  # runs that take turns; the others wait in line


class Worker:
    """Makes the runs of all sessions. Start one per process."""

    def __init__(self, models: ModelCache) -> None:
        self._models = models
        self._known = RunRegistry()
        self._wake = threading.Condition()  # held to read or change what follows
        self._waiting = RunQueue()
        self._running: list[Live[Any]] = []
        self._events: dict[str, Iterator[Any]] = {}  # of both
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="eab-worker", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a thread inside torch must not outlive the interpreter

    def start(
        self, prompt: str, config: BranchingConfig, model_name: str, owner: str = ""
    ) -> LiveRun:
        """Begin a run; it appears at once, in state `loading`. owner: whose runs take their places
        one by one.
        """

        def make(model: "LanguageModel", prompt: str, config: BranchingConfig) -> Iterator[Event]:
            from eab.engine.loop import generate
            from eab.engine.request import Request

            return generate(model, Request(prompt, config), self._draft(config.drafter))

        return self._begin(
            Live(prompt, config, model_name, RunFold(), make, owner, config.max_new_tokens)
        )

    def grow(
        self,
        started: RunStarted,
        continued: Sequence[int],
        config: BranchingConfig,
        model_name: str,
        owner: str = "",
    ) -> LiveRun:
        """Begin a run that goes on from the run that `started`; see eab.engine.continuing."""

        def make(model: "LanguageModel", _prompt: str, config: BranchingConfig) -> Iterator[Event]:
            from eab.engine.continuing import continue_from
            from eab.engine.loop import generate

            request = continue_from(model, started, continued, config)
            return generate(model, request, self._draft(config.drafter))

        return self._begin(
            Live(started.prompt, config, model_name, RunFold(), make, owner, config.max_new_tokens)
        )

    def compare(
        self,
        prompt: str,
        config: BranchingConfig,
        model_name: str,
        sweep: Sweep,
        owner: str = "",
    ) -> LiveSweep:
        """Begin a run of each of the comparison's variants, one after the other; it takes its turns
        like any run.
        """
        variants = sweep.variants
        drafters = [settings.get("drafter", config.drafter) for settings in variants.values()]

        def make(model: "LanguageModel", prompt: str, config: BranchingConfig) -> Iterator[Event]:
            from eab.engine.request import Request
            from eab.engine.sweeping import run_sweep

            return run_sweep(model, Request(prompt, config), variants, self._draft(*drafters))

        longest = config.max_new_tokens * len(variants)
        return self._begin(Live(prompt, config, model_name, sweep, make, owner, longest))

    def measure(
        self, experiment: Experiment, rows: int, model_name: str, owner: str = ""
    ) -> LiveReport:
        """Begin a BMC experiment with runs of so many rows; it takes its turns like any run. It has
        no settings, and its name is its prompt."""

        def make(
            model: "LanguageModel", prompt: str, config: BranchingConfig
        ) -> Iterator[ReportEvent]:
            from eab.bmc.experiments import measure

            return measure(experiment, model, rows)

        return self._begin(
            Live(
                experiment, BranchingConfig(max_new_tokens=1), model_name, Report(), make, owner, 1
            )
        )

    def find(self, run_id: str, kind: type[State]) -> Live[State] | None:
        """See Registry.find."""
        return self._known.find(run_id, kind)

    def position(self, run: Live[Any]) -> QueuePosition | None:
        """Where the run stands in the line; None if it does not wait."""
        with self._wake:
            return self._waiting.position(run, self._running, AT_ONCE)

    @property
    def active(self) -> int:
        """Runs that wait or take turns."""
        with self._wake:
            return len(self._running) + len(self._waiting.runs)

    def close(self) -> None:
        """Stop all runs and end the thread."""
        self._known.stop_all()
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def warm_up(self, model_name: str, after: float) -> None:
        """Load a model in the background, so that the first run begins at once."""
        timer = threading.Timer(after, self._warm_up_now, (model_name,))
        timer.daemon = True
        timer.start()

    def _warm_up_now(self, model_name: str) -> None:
        with suppress(EabError):  # whoever runs it will be told
            self._models.get(model_name)

    def _draft(self, *drafters: str) -> "LanguageModel | None":
        """The model that guesses, if one of these drafters is one."""
        return self._models.get(DRAFT) if "model" in drafters else None

    def _begin(self, run: Live[State]) -> Live[State]:
        self._known.add(run)
        threading.Thread(target=self._prepare, args=(run,), name="eab-loading", daemon=True).start()
        return run

    def _prepare(self, run: Live[Any]) -> None:
        """Load the model and look at the prompt: who waits should not learn at the end of the line
        that it is wrong.
        """
        try:
            model = self._models.get(run.model_name)
            from eab.engine.build import check_and_calibrate
            from eab.engine.loop import stop_when
            from eab.engine.request import Request

            check_and_calibrate(model, Request(run.prompt, run.config))
            events = stop_when(run.make(model, run.prompt, run.config), lambda: run.stopping)
        except Exception as error:
            run.fail(_explain(error))
            return
        with self._wake:
            if run.go_on("waiting"):
                self._waiting.join(run)
                self._events[run.id] = events
                self._wake.notify()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(
                    lambda: self._closed or bool(self._running or self._waiting.runs)
                )
                if self._closed:
                    return
                self._let_in()
                turn = [(run, self._events[run.id]) for run in self._running]
            for run, events in turn:
                _take_turn(run, events)

    def _let_in(self) -> None:
        """Drop those that ended; let others begin where there is room."""
        self._running = [run for run in self._running if run.active]
        self._waiting.drop_ended()
        while self._waiting.runs and len(self._running) < AT_ONCE:
            run = self._waiting.first()
            if run.go_on("running"):
                self._running.append(run)
        known = {run.id for run in (*self._running, *self._waiting.runs)}
        self._events = {
            run_id: events for run_id, events in self._events.items() if run_id in known
        }


def _take_turn(run: Live[Any], events: Iterator[Event]) -> None:
    """One step of one run; if it breaks, it breaks alone."""
    try:
        if not run.take_turn(events) and run.active:
            run.fail("the run ended without saying why; try again")
    except Exception as error:
        run.fail(_explain(error))


def _explain(error: Exception) -> str:
    if isinstance(error, EabError):
        return str(error)
    return (
        f"the run broke ({type(error).__name__}: {error}). What it had is kept; try other settings"
    )
