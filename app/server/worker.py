"""The worker thread that makes the runs which the pages watch.

Runs of one model share their forward passes, so that all trees grow at the same time. Comparisons,
sweeps and measurements take turns with them. Beyond a limit, runs wait. An error in a run ends only
that run; after one that would end the thread, all runs end and the thread goes on with new ones.
Models load in threads of their own. A run that nobody watches any more is stopped.

Knows nothing of Streamlit.
"""

import atexit
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from app.server import metrics
from app.server.admission import Admission
from app.server.batched_runs import MAX_RUNNING, BatchedRuns, kv_total_bytes
from app.server.live_run import (
    LiveBatching,
    LiveFormats,
    LiveProbe,
    LiveReport,
    LiveRun,
    LiveTask,
    LiveTuning,
    LiveVariants,
    State,
    explain,
    explain_restart,
)
from app.server.model_cache import DRAFT, ModelCache
from app.server.queue import QueuePosition
from app.server.registry import RunRegistry
from app.server.rules import PRIVATE, Rules
from app.server.serving_log import ServingNow
from app.server.turns import Turns
from eab.analysis.batching import BatchingComparison, BatchingEvent, Workload
from eab.analysis.variants import REPEATS, VariantEvent, VariantRuns
from eab.bmc.results import Experiment, Report, ReportEvent
from eab.config import BranchingConfig
from eab.engine.request import Request
from eab.errors import ModelError
from eab.events import Message, RunStarted
from eab.quantization.results import FormatReport
from eab.quantization.results import ReportEvent as FormatEvent
from eab.run import RunFold
from eab.tuning.grid import Grid
from eab.tuning.prompt_sets import TuningPrompt
from eab.tuning.report import ReportEvent as TuningEvent
from eab.tuning.report import TuningReport
from eab.weight_formats import AS_LOADED

if TYPE_CHECKING:
    from eab.models.base import LanguageModel
    from eab.models.huggingface import HuggingFaceModel


class Worker:
    """Makes the runs of all sessions. Start one per process.

    Args:
        models: Where runs get their models from.
        max_running: How many runs of one model are served at the same time; the others wait.
        rules: What may be asked for. What they do not allow raises LimitError, at once.
    """

    def __init__(
        self, models: ModelCache, max_running: int = MAX_RUNNING, rules: Rules = PRIVATE
    ) -> None:
        self._models = models
        self._admission = Admission(rules)
        self._registry = RunRegistry()
        self._wake = threading.Condition()  # held to read or change what follows
        self._runs, self._turns = BatchedRuns(max_running, rules.kv_total_mib), Turns()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="eab-worker", daemon=True)
        self._thread.start()
        metrics.watch(self)
        atexit.register(self.close)  # a thread inside torch must not outlive the interpreter

    def start_run(
        self,
        prompt: str,
        config: BranchingConfig,
        model_name: str,
        owner: str = "",
        messages: tuple[Message, ...] = (),
        probe_only: bool = False,
    ) -> LiveRun:
        """Start a run, which is `loading` at first.

        Args:
            prompt: The prompt, or the title of the messages.
            config: The settings.
            model_name: The model, as `app.server.model_cache` names it.
            owner: Which tab starts it; the queue is fair between owners.
            messages: The chat in the place of a prompt.
            probe_only: Whether to end where the run begins, with the probe of a quantile threshold.
        """
        config = self._admission.limited(config)
        turns, asked = config.max_new_tokens, Request(prompt, config, messages=messages)
        kind = LiveProbe if probe_only else LiveTask[RunFold]
        return self._launch(
            kind(prompt, config, model_name, RunFold(), lambda _: asked, owner, turns, messages)
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
            model_name: The model, as `app.server.model_cache` names it.
            owner: Which tab starts it.
        """
        config = self._admission.limited(config)

        def begin(model: "LanguageModel") -> Request:
            from eab.engine.continuing import continue_from

            return continue_from(model, started, continued, config)

        max_turns = config.max_new_tokens
        state, prompt, messages = RunFold(), started.prompt, started.messages
        return self._launch(
            LiveTask(prompt, config, model_name, state, begin, owner, max_turns, messages)
        )

    def start_variants(
        self,
        prompt: str,
        config: BranchingConfig,
        model_name: str,
        compared: VariantRuns,
        owner: str = "",
    ) -> LiveVariants:
        """Start a comparison: a run of each variant, then repeats in turn, for the times. It takes
        turns like a run.

        Args:
            prompt: The prompt of all runs.
            config: The settings that all runs share.
            model_name: The model, as `app.server.model_cache` names it.
            compared: The empty comparison to fill: its variants.
            owner: Which tab starts it.
        """
        config, variants = self._admission.limited(config), compared.variants
        drafters = [settings.get("drafter", config.drafter) for settings in variants.values()]

        def begin(model: "LanguageModel") -> Iterator[VariantEvent]:
            from eab.engine.variants import run_variants

            return run_variants(model, Request(prompt, config), variants, self._draft(*drafters))

        max_turns = config.max_new_tokens * len(variants) * (1 + REPEATS)
        return self._launch(LiveTask(prompt, config, model_name, compared, begin, owner, max_turns))

    def start_measurement(
        self, experiment: Experiment, rows: int, model_name: str, owner: str = ""
    ) -> LiveReport:
        """Start a BMC experiment. It takes turns like a run, and has no settings.

        Args:
            experiment: Which one; it takes the place of the prompt.
            rows: KV rows that each of its runs writes.
            model_name: The model, as `app.server.model_cache` names it.
            owner: Which tab starts it.
        """

        def begin(model: "LanguageModel") -> Iterator[ReportEvent]:
            from eab.bmc.experiments import measure

            return measure(experiment, model, rows)

        config = BranchingConfig(max_new_tokens=1)
        return self._launch(
            LiveTask(experiment, config, model_name, Report(), begin, owner, max_turns=1)
        )

    def start_batching(self, workload: Workload, model_name: str, owner: str = "") -> LiveBatching:
        """Start serving the same requests in several ways. It takes turns like a run.

        Args:
            workload: The requests.
            model_name: The model, as `eab.models.loading` names it.
            owner: Which tab starts it.
        """

        def begin(model: "LanguageModel") -> Iterator[BatchingEvent]:
            from eab.engine.batching import compare_ways
            from eab.models.machine import describe_machine

            return compare_ways(model, workload, describe_machine(model.card.device))

        configs = [workload.config(request) for request in workload.requests]
        prompt, state = workload.requests[0].prompt, BatchingComparison()
        return self._launch(
            LiveTask(prompt, configs[0], model_name, state, begin, owner, max_turns=1), configs
        )

    def start_formats(self, prompt: str, model_name: str, owner: str = "") -> LiveFormats:
        """Start measuring a model in every weight format. It takes turns like a run.

        Args:
            prompt: Whose next token is compared.
            model_name: The model, as `eab.models.loading` names it.
            owner: Which tab starts it.
        """

        def begin(loaded: "LanguageModel") -> Iterator[FormatEvent]:
            from eab.models.loading import load_model
            from eab.quantization.experiments import measure_formats

            if loaded.kv_shape.blocks is not None:
                raise ModelError(
                    f"the weights of {model_name} are on a server; choose a model on this machine"
                )

            def load(weights: str) -> "HuggingFaceModel":
                if weights == AS_LOADED:
                    return cast("HuggingFaceModel", loaded)
                return load_model(model_name, weights=weights)

            return measure_formats(load, prompt)

        config = BranchingConfig(max_new_tokens=1)
        return self._launch(
            LiveTask(prompt, config, model_name, FormatReport(), begin, owner, max_turns=1)
        )

    def start_tuning(
        self,
        purpose: str,
        grid: Grid,
        prompts: Sequence[TuningPrompt],
        model_name: str,
        owner: str = "",
    ) -> LiveTuning:
        """Start a sweep of settings. It takes turns like a run.

        Args:
            purpose: What it is for; it takes the place of the prompt.
            grid: The settings.
            prompts: The prompts, with their answers where these are known.
            model_name: The model, as `eab.models.loading` names it.
            owner: Which tab starts it.
        """
        grid = replace(grid, base=self._admission.limited(grid.base))

        def begin(model: "LanguageModel") -> Iterator[TuningEvent]:
            from eab.tuning.reporting import report_sweep

            return report_sweep(model, prompts, grid)

        return self._launch(
            LiveTask(purpose, grid.base, model_name, TuningReport(), begin, owner, max_turns=1),
            grid.configs(),
        )

    def model(self, name: str) -> "LanguageModel":
        """The model of this name, loaded if necessary; see `ModelCache.get`.

        Raises:
            LimitError: Visitors may not choose it.
        """
        self._admission.check_model(name)
        return self._models.get(name)

    def find(self, run_id: str, kind: type[State]) -> LiveTask[State] | None:
        """See `RunRegistry.find`."""
        return self._registry.find(run_id, kind)

    def position(self, run: LiveTask[Any]) -> QueuePosition | None:
        """The position of a run in the queue; None if it does not wait."""
        with self._wake:
            return self._runs.position(run) or self._turns.position(run)

    @property
    def active(self) -> int:
        """How many runs, sweeps and measurements wait or are being made."""
        with self._wake:
            return self._runs.active + self._turns.active

    @property
    def waiting(self) -> int:
        """How many runs wait for a slot."""
        return self.serving_now().waiting

    @property
    def kv_bytes(self) -> int:
        """Bytes of KV memory that the runs in the making hold, as measured in their last step."""
        return sum(run.kv_bytes for run in self._registry.runs if run.active)

    @property
    def kv_limit_bytes(self) -> int:
        """Bytes of KV memory that all runs may hold."""
        return kv_total_bytes(self._runs.kv_total_mib)

    def serving_now(self) -> ServingNow:
        """Who is served right now."""
        with self._wake:
            return self._runs.serving_now(self._turns.active)

    @property
    def remembered(self) -> list[LiveTask[Any]]:
        """What was started and is still known, the oldest first."""
        return self._registry.runs

    def close(self) -> None:
        """Stop all runs and end the thread."""
        self._registry.stop_all()
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def _draft(self, *drafters: str) -> "LanguageModel | None":
        """The draft model, if one of these drafters needs it."""
        return self._models.get(DRAFT) if "model" in drafters else None

    def _launch(
        self, run: LiveTask[State], configs: Sequence[BranchingConfig] = ()
    ) -> LiveTask[State]:
        self._admission.admit(run, configs or [run.config])
        self._registry.add(run)
        loading = threading.Thread(
            target=self._prepare, args=(run,), name="eab-loading", daemon=True
        )
        try:
            loading.start()
        except RuntimeError as error:  # this process may have no more threads
            run.fail(f"this server cannot begin another run now ({error}). Try again in a minute")
        return run

    def _prepare(self, run: LiveTask[Any]) -> None:
        """Load the model and check the prompt, so that a wrong one is reported before the wait."""
        try:
            model = self._models.get(run.model_name)
            from eab.engine.build import check_and_calibrate, encode
            from eab.engine.loop import stop_when

            request = Request(run.prompt, run.config, messages=run.messages)
            self._admission.check_prompt(len(encode(model, request)))
            check_and_calibrate(model, request)
            asked = run.begin(model)
            draft = self._draft(run.config.drafter) if isinstance(asked, Request) else None
        except BaseException as error:  # a panic in compiled code is no Exception
            run.fail(explain(error))
            return
        with self._wake:
            if isinstance(asked, Request):
                self._runs.submit(run, model, asked, draft)
            else:
                self._turns.add(run, stop_when(asked, lambda: run.should_stop))
            self._wake.notify()

    def _work(self) -> None:
        while not self._closed:
            try:
                self._serve()
            except BaseException as error:  # nobody else would tell those who wait
                self._begin_anew(error)

    def _begin_anew(self, error: BaseException) -> None:
        words = explain_restart(error)
        with self._wake:
            self._registry.fail_begun(words)
            before = self._runs
            self._runs = BatchedRuns(before.max_running, before.kv_total_mib)
            self._turns = Turns()

    def _serve(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(
                    lambda: self._closed or bool(self._runs.active or self._turns.active)
                )
                if self._closed:
                    return
                self._runs.tidy()
                self._turns.tidy()
            self._runs.serve()
            self._turns.serve()
