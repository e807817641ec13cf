"""The worker thread that makes the runs which the pages watch.

It gives one turn, one step, to each run after the other, so that several users see their trees grow
at the same time; an error in a run ends only that run. Runs beyond MAX_RUNNING wait in the queue.
Models load in threads of their own. A run that nobody watches any more is stopped.

Knows nothing of Streamlit.
"""

import atexit
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from app.server.live_run import LiveReport, LiveRun, LiveSweep, LiveTask, State
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

MAX_RUNNING: Final = 8  # runs that take turns; the others wait in the queue


class Worker:
    """Makes the runs of all sessions. Start one per process.

    Args:
        models: Where runs get their models from.
    """

    def __init__(self, models: ModelCache) -> None:
        self._models = models
        self._registry = RunRegistry()
        self._wake = threading.Condition()  # held to read or change what follows
        self._queue = RunQueue()
        self._running: list[LiveTask[Any]] = []
        self._events: dict[str, Iterator[Any]] = {}  # by id, of the queued and the running ones
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="eab-worker", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a thread inside torch must not outlive the interpreter

    def start_run(
        self, prompt: str, config: BranchingConfig, model_name: str, owner: str = ""
    ) -> LiveRun:
        """Start a run.

        Args:
            prompt: The prompt.
            config: The settings.
            model_name: The model, as `eab.models.loading` names it.
            owner: Which tab starts it; the queue is fair between owners.

        Returns:
            The run, which is `loading` at first.
        """

        def make(model: "LanguageModel", prompt: str, config: BranchingConfig) -> Iterator[Event]:
            from eab.engine.loop import generate
            from eab.engine.request import Request

            return generate(model, Request(prompt, config), self._draft(config.drafter))

        return self._launch(
            LiveTask(prompt, config, model_name, RunFold(), make, owner, config.max_new_tokens)
        )

    def grow_run(
        self,
        started: RunStarted,
        continued: Sequence[int],
        config: BranchingConfig,
        model_name: str,
        owner: str = "",
    ) -> LiveRun:
        """Start a run that continues another one; see `eab.engine.continuing`.

        Args:
            started: The header of the other run.
            continued: The tokens to continue from, after the other run's prompt.
            config: The settings.
            model_name: The model, as `eab.models.loading` names it.
            owner: Which tab starts it.
        """

        def make(model: "LanguageModel", _prompt: str, config: BranchingConfig) -> Iterator[Event]:
            from eab.engine.continuing import continue_from
            from eab.engine.loop import generate

            request = continue_from(model, started, continued, config)
            return generate(model, request, self._draft(config.drafter))

        return self._launch(
            LiveTask(
                started.prompt, config, model_name, RunFold(), make, owner, config.max_new_tokens
            )
        )

    def start_sweep(
        self,
        prompt: str,
        config: BranchingConfig,
        model_name: str,
        sweep: Sweep,
        owner: str = "",
    ) -> LiveSweep:
        """Start a sweep: a run of each variant, one after the other. It takes turns like a run.

        Args:
            prompt: The prompt of all runs.
            config: The settings that all runs share.
            model_name: The model, as `eab.models.loading` names it.
            sweep: The empty sweep to fill: its variants.
            owner: Which tab starts it.
        """
        variants = sweep.variants
        drafters = [settings.get("drafter", config.drafter) for settings in variants.values()]

        def make(model: "LanguageModel", prompt: str, config: BranchingConfig) -> Iterator[Event]:
            from eab.engine.request import Request
            from eab.engine.sweeping import run_sweep

            return run_sweep(model, Request(prompt, config), variants, self._draft(*drafters))

        longest = config.max_new_tokens * len(variants)
        return self._launch(LiveTask(prompt, config, model_name, sweep, make, owner, longest))

    def start_measurement(
        self, experiment: Experiment, rows: int, model_name: str, owner: str = ""
    ) -> LiveReport:
        """Start a BMC experiment. It takes turns like a run, and has no settings.

        Args:
            experiment: Which one; it takes the place of the prompt.
            rows: KV rows that each of its runs writes.
            model_name: The model, as `eab.models.loading` names it.
            owner: Which tab starts it.
        """

        def make(
            model: "LanguageModel", prompt: str, config: BranchingConfig
        ) -> Iterator[ReportEvent]:
            from eab.bmc.experiments import measure

            return measure(experiment, model, rows)

        return self._launch(
            LiveTask(
                experiment, BranchingConfig(max_new_tokens=1), model_name, Report(), make, owner, 1
            )
        )

    def find(self, run_id: str, kind: type[State]) -> LiveTask[State] | None:
        """See `RunRegistry.find`."""
        return self._registry.find(run_id, kind)

    def position(self, run: LiveTask[Any]) -> QueuePosition | None:
        """The position of a run in the queue; None if it does not wait."""
        with self._wake:
            return self._queue.position(run, self._running, MAX_RUNNING)

    @property
    def active(self) -> int:
        """How many runs wait or take turns."""
        with self._wake:
            return len(self._running) + len(self._queue.runs)

    def close(self) -> None:
        """Stop all runs and end the thread."""
        self._registry.stop_all()
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def warm_up(self, model_name: str, after: float) -> None:
        """Load a model in the background, so that the first run starts at once.

        Args:
            model_name: The model.
            after: Seconds to wait before loading.
        """
        timer = threading.Timer(after, self._warm_up_now, (model_name,))
        timer.daemon = True
        timer.start()

    def _warm_up_now(self, model_name: str) -> None:
        with suppress(EabError):  # whoever runs it gets the message
            self._models.get(model_name)

    def _draft(self, *drafters: str) -> "LanguageModel | None":
        """The draft model, if one of these drafters needs it."""
        return self._models.get(DRAFT) if "model" in drafters else None

    def _launch(self, run: LiveTask[State]) -> LiveTask[State]:
        self._registry.add(run)
        threading.Thread(target=self._prepare, args=(run,), name="eab-loading", daemon=True).start()
        return run

    def _prepare(self, run: LiveTask[Any]) -> None:
        """Load the model and check the prompt, so that a wrong one is reported before the wait."""
        try:
            model = self._models.get(run.model_name)
            from eab.engine.build import check_and_calibrate
            from eab.engine.loop import stop_when
            from eab.engine.request import Request

            check_and_calibrate(model, Request(run.prompt, run.config))
            events = stop_when(run.generate(model, run.prompt, run.config), lambda: run.should_stop)
        except Exception as error:
            run.fail(_explain(error))
            return
        with self._wake:
            if run.advance_to("waiting"):
                self._queue.add(run)
                self._events[run.id] = events
                self._wake.notify()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._closed or bool(self._running or self._queue.runs))
                if self._closed:
                    return
                self._admit()
                running = [(run, self._events[run.id]) for run in self._running]
            for run, events in running:
                _run_turn(run, events)

    def _admit(self) -> None:
        """Remove the runs that ended, and start waiting ones in their place."""
        self._running = [run for run in self._running if run.active]
        self._queue.remove_ended()
        while self._queue.runs and len(self._running) < MAX_RUNNING:
            run = self._queue.pop()
            if run.advance_to("running"):
                self._running.append(run)
        known = {run.id for run in (*self._running, *self._queue.runs)}
        self._events = {
            run_id: events for run_id, events in self._events.items() if run_id in known
        }


def _run_turn(run: LiveTask[Any], events: Iterator[Event]) -> None:
    """One turn of one run; an exception ends only this run."""
    try:
        if not run.run_turn(events) and run.active:
            run.fail("the run ended without saying why; try again")
    except Exception as error:
        run.fail(_explain(error))


def _explain(error: Exception) -> str:
    if isinstance(error, EabError):
        return str(error)
    cause = f"{type(error).__name__}: {error}"
    return f"the run stopped with an error ({cause}). What it had is kept; try other settings"
