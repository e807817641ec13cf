"""The worker thread that executes the runs that the pages watch.

Runs of one model share forward passes, so all trees grow simultaneously. Comparisons, sweeps and
measurements take turns with them. Runs over the limit wait. An error in a run ends only that run.
After an error that would end the thread, all runs end and the thread continues with new ones.
Models load in their own threads. A run that nobody watches is stopped.

Sweeps and measurements have time slices: they measure their own time, so nothing else may share
their forward passes. `serve` may run without the worker's lock; everything else needs it.
"""

import atexit
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from app.server.batched_runs import (
    MAX_RUNNING,
    BatchedRuns,
    PrefixesNow,
    ServingNow,
    kv_total_bytes,
)
from app.server.model_cache import DRAFT, ModelCache, give_back
from app.server.rules import PRIVATE, Rules
from app.server.tasks import (
    Admission,
    LiveTask,
    QueuePosition,
    explain,
    explain_restart,
    position_in,
)
from eab.engine.fairness import FairQueue
from eab.engine.job import Job, JobContext, State
from eab.engine.request import Request

if TYPE_CHECKING:
    from eab.engine.models.base import LanguageModel


MAX_TAKING_TURNS: Final = 8  # more tasks wait


class TimeSlices:
    """Tasks that take turns; a turn lasts until the next Pause."""

    def __init__(self) -> None:
        self._queue: FairQueue[LiveTask[Any]] = FairQueue()
        self._running: list[LiveTask[Any]] = []
        self._events: dict[str, Iterator[Any]] = {}  # by id of the queued or running task

    @property
    def active(self) -> int:
        """The number of tasks that wait or take turns."""
        return len(self._running) + len(self._queue.entries)

    def add(self, task: LiveTask[Any], events: Iterator[Any]) -> None:
        """Queue a task, unless it has been stopped in the meantime."""
        if task.advance_to("waiting"):
            self._queue.add(task)
            self._events[task.id] = events

    def position(self, task: LiveTask[Any]) -> QueuePosition | None:
        """The position of a task in the queue; None if it is not waiting."""
        waiting = self._queue.entries
        if task not in waiting:
            return None
        return position_in(waiting, task, self._running, MAX_TAKING_TURNS)

    def tidy(self) -> None:
        """Drop ended tasks, and start waiting ones in their place."""
        self._running = [task for task in self._running if task.active]
        for task in self._queue.entries:
            if task.should_stop:
                task.end_if_not_started()
            if not task.active:
                self._queue.remove(task)
        while self._queue.entries and len(self._running) < MAX_TAKING_TURNS:
            task = self._queue.pop()
            if task.advance_to("running"):
                self._running.append(task)
        known = {task.id for task in (*self._running, *self._queue.entries)}
        self._events = {key: events for key, events in self._events.items() if key in known}

    def serve(self) -> None:
        """Give each task one turn; an exception ends only that task."""
        for task in list(self._running):
            try:
                if not task.run_turn(self._events[task.id]) and task.active:
                    task.fail("the run ended unexpectedly; try again")
            except Exception as error:
                task.fail(explain(error))


MAX_REMEMBERED: Final = 100  # tasks
MAX_TOKENS: Final = 150_000  # in all of them; each takes about 1.7 KB


class Remembered:
    """The tasks that a reloaded page finds again, by id: all active ones and the newest ended ones.
    Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[str, LiveTask[Any]] = {}

    def add(self, task: LiveTask[Any]) -> None:
        """Remember a task; forget the oldest ended ones if there are too many."""
        with self._lock:
            tokens = sum(one.tokens for one in self._tasks.values())
            for old in list(self._tasks.values()):
                if len(self._tasks) < MAX_REMEMBERED and tokens <= MAX_TOKENS:
                    break
                if not old.active:
                    tokens -= old.tokens
                    del self._tasks[old.id]
            self._tasks[task.id] = task

    def find(self, task_id: str, kind: type[State]) -> LiveTask[State] | None:
        """The task with this id and this type of state; None if it is unknown or forgotten."""
        with self._lock:
            task = self._tasks.get(task_id)
        return task if task is not None and isinstance(task.state, kind) else None

    @property
    def all(self) -> list[LiveTask[Any]]:
        """All tasks, oldest first."""
        with self._lock:
            return list(self._tasks.values())


REST: Final = 2.0  # seconds without work before free memory is given back


class Worker:
    """Executes the runs of all sessions, within the rules; start one per process."""

    def __init__(
        self, models: ModelCache, max_running: int = MAX_RUNNING, rules: Rules = PRIVATE
    ) -> None:
        self._models = models
        self._admission = Admission(rules)
        self._remembered = Remembered()
        self._wake = threading.Condition()  # hold it to read or change the fields below
        self._runs, self._slices = BatchedRuns(max_running, rules), TimeSlices()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="eab-worker", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a thread inside torch must not outlive the interpreter

    def start(self, job: Job[State], owner: str = "", scope: str = "") -> LiveTask[State]:
        """Start a job. Raises LimitError if the rules forbid it. The queue is fair between owners.
        Runs in the same scope share computed prompts.
        """
        live = LiveTask(job.with_limits(self._admission.limited), owner, scope)
        self._admission.admit(live)
        self._remembered.add(live)
        loading = threading.Thread(
            target=self._prepare, args=(live,), name="eab-loading", daemon=True
        )
        try:
            loading.start()
        except RuntimeError as error:  # the process cannot start more threads
            live.fail(f"this server cannot start another run now ({error}). Try again in a minute")
        return live

    def model(self, name: str) -> "LanguageModel":
        """The model of this name, loaded if necessary. Raises LimitError if it is not allowed."""
        self._admission.check_model(name)
        return self._models.get(name)

    def find(self, run_id: str, kind: type[State]) -> LiveTask[State] | None:
        """See `Remembered.find`."""
        return self._remembered.find(run_id, kind)

    def position(self, run: LiveTask[Any]) -> QueuePosition | None:
        """The position of a run in the queue; None if it is not waiting."""
        with self._wake:
            return self._runs.position(run) or self._slices.position(run)

    @property
    def active(self) -> int:
        """The number of runs, sweeps and measurements that wait or are running."""
        with self._wake:
            return self._runs.active + self._slices.active

    @property
    def waiting(self) -> int:
        """The number of runs that wait for a slot."""
        return self.serving_now().waiting

    @property
    def kv_bytes(self) -> int:
        """KV memory of the active runs in bytes, as measured in their last step."""
        return sum(run.kv_bytes for run in self.remembered if run.active)

    @property
    def kv_limit_bytes(self) -> int:
        """KV memory in bytes that all runs together may hold."""
        return kv_total_bytes(self._runs.rules.kv_total_mib)

    def serving_now(self) -> ServingNow:
        """The newest shared passes, and how many runs are served or waiting now."""
        with self._wake:
            return self._runs.serving_now(self._slices.active)

    def prefixes_now(self, owner: str) -> list[PrefixesNow]:
        """What the prefix caches hold right now; only texts of this owner's runs are readable."""
        own = [text for live in self.remembered if live.owner == owner for text in live.texts()]
        with self._wake:
            return self._runs.prefixes_now(own)

    @property
    def remembered(self) -> list[LiveTask[Any]]:
        """All started tasks that are still remembered, oldest first."""
        return self._remembered.all

    def close(self) -> None:
        """Stop all runs and end the thread."""
        for live in self.remembered:
            live.stop()
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def _prepare(self, live: LiveTask[Any]) -> None:
        """Load the model and check the prompts, so that errors are reported before the wait."""
        try:
            model, job = self._models.get(live.model_name), live.job
            if live.should_stop:  # it has been stopped while the model was loaded
                return live.end_if_not_started()
            from eab.engine.build import check_request, encode
            from eab.engine.loop import stop_when

            for request in job.requests:
                self._admission.check_prompt(len(encode(model, request)))
                check_request(model, request)
            draft = self._models.get(DRAFT) if job.needs_draft else None
            asked = job.begin(JobContext(model, draft, job.requests))
        except BaseException as error:  # a panic in compiled code is not an Exception
            live.fail(explain(error))
            return
        with self._wake:
            if isinstance(asked, Request):
                self._runs.submit(live, model, asked, draft)
            else:
                self._slices.add(live, stop_when(asked, lambda: live.should_stop))
            self._wake.notify()

    def _work(self) -> None:
        while not self._closed:
            try:
                self._serve()
            except BaseException as error:  # otherwise waiting users would never hear of it
                self._restart_after(error)

    def _restart_after(self, error: BaseException) -> None:
        words = explain_restart(error)
        with self._wake:
            for live in self.remembered:
                if live.status != "loading":
                    live.fail(words)
            before = self._runs
            self._runs = BatchedRuns(before.max_running, before.rules)
            self._slices = TimeSlices()

    def _serve(self) -> None:
        def is_needed() -> bool:
            return self._closed or bool(self._runs.active or self._slices.active)

        while True:
            with self._wake:
                has_work = self._wake.wait_for(is_needed, REST)
            if not has_work:
                give_back()
            with self._wake:
                self._wake.wait_for(is_needed)
                if self._closed:
                    return
                self._runs.tidy()
                self._slices.tidy()
            self._runs.serve()
            self._slices.serve()
