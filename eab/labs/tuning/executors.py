"""Where the items of a sweep run: in this process, with one scheduler and several runs in each
forward pass; or on a Ray cluster, where each worker is an actor that loads the model once.

An item's run at the lowest threshold comes first; the other cells are resimulated from it if that
is exact (`eab.engine.what_if.resimulate`). The model makes the next run for the rest, and so on.
"""

import logging
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import Any, Final, TypeAlias

from msgspec import structs

from eab.config import BranchingConfig
from eab.engine.caches.prefix_cache import prefix_cache
from eab.engine.loop import ActiveRun, ManyRuns, event_stream
from eab.engine.models.base import LanguageModel
from eab.engine.models.transformers_model import TransformersModel
from eab.engine.request import Request
from eab.engine.what_if.resimulate import resimulate
from eab.errors import EabError, ModelError, RecordError, RunsError
from eab.formatting import quoted
from eab.labs.tuning.grid import Cell, run_file_name
from eab.labs.tuning.measure import Measurement, load_rule
from eab.labs.tuning.sweeping import Item, Outcome, cell_key
from eab.run import fold, record
from eab.run.events import Event, ModelCard, Probed
from eab.run.threshold import threshold_in_nats

WARM_UP_TOKENS = 2


# Settings, with the events of their run, and its share of the time; None if it is resimulated
_Made: TypeAlias = tuple[BranchingConfig, Sequence[Event], float | None]


@dataclass(frozen=True, slots=True)
class _Work:
    item: Item
    left: list[BranchingConfig]  # settings that have no cell yet

    @property
    def request(self) -> Request:
        """The request for the next run."""
        return self.item.prompt.request(self.left[0], self.item.policy)


class InProcess:
    """Runs items with one model; ModelError if the rule's NLI model cannot be used."""

    def __init__(
        self, model: LanguageModel, measurement: Measurement, draft: LanguageModel | None = None
    ) -> None:
        self._model, self._draft, self._measurement = model, draft, measurement
        self._card = _card_of(model)
        self._prefixes = prefix_cache(model.kv_shape) if measurement.reuse_prompts else None
        load_rule(measurement.same_answer)  # cached; any failure comes before the first run

    @property
    def card(self) -> ModelCard:
        return self._card

    def outcomes(self, items: Sequence[Item]) -> Generator[Outcome | None]:
        runs: ManyRuns[_Work] = ManyRuns(self._model, self._draft, self._prefixes, first_alone=True)
        for item in items:
            work = _Work(item, [*item.configs])
            runs.add(work, work.request)
        self._warm_up(items)
        with closing(runs):
            while runs.busy:
                for ended in runs.step():
                    outcome = self._ended(ended)
                    if ended.tag.left:
                        runs.add(ended.tag, ended.tag.request, first=True)
                    yield outcome
                yield None

    def _warm_up(self, items: Sequence[Item]) -> None:
        """Run a few tokens, so that the first cells are not timed with slow first passes."""
        for item in items[:1]:
            short = BranchingConfig(max_new_tokens=WARM_UP_TOKENS)
            try:
                for _ in event_stream(self._model, item.prompt.request(short)):
                    pass
            except EabError:
                return  # the item's own run will report the error

    def _ended(self, ended: ActiveRun[_Work]) -> Outcome:
        """The cells of a run, and those that follow from it."""
        work, config = ended.tag, ended.tag.left[0]
        if ended.problem:
            work.left.remove(config)
            words = f"{work.item.prompt.id}, seed {config.seed}: {ended.problem}"
            return Outcome(replace(work.item, configs=(config,)), (), (words,))
        made: _Made = config, ended.events, ended.seconds
        return self._outcome(work, [made, *self._following(work, ended.events, config)])

    def _following(self, work: _Work, run: Sequence[Event], made: BranchingConfig) -> list[_Made]:
        """The cells that are left and can be resimulated exactly from the run of `made`."""
        config = work.item.configs[0]
        if config.cache != "tree" or config.drafter != "none":
            return []  # a resimulated run has a tree cache and no drafter
        others = [other for other in work.left if other != made]
        found = [(other, self._resimulated(run, other)) for other in others]
        return [(other, events, None) for other, events in found if events is not None]

    def _outcome(self, work: _Work, made: Sequence[_Made]) -> Outcome:
        """The outcome of these settings, which are then no longer left."""
        cells, failures, runs = list[Cell](), list[str](), dict[str, bytes]()
        prompt = work.item.prompt
        for config, events, seconds in made:
            work.left.remove(config)
            key = cell_key(self._card, prompt, config)
            name = run_file_name(prompt.id, key)
            if self._measurement.keep_runs:
                try:
                    runs[name] = record.dumps(events)
                except RecordError as error:  # too large for a file, but the cell is still valid
                    failures.append(f"{prompt.id}, seed {config.seed}: {error}")
            file = name if name in runs else None
            run = fold(events)
            cells.append(
                self._measurement.cell(key, prompt, config, run, seconds=seconds, run_file=file)
            )
        item = replace(work.item, configs=tuple(config for config, _, _ in made))
        return Outcome(item, tuple(cells), tuple(failures), runs)

    def _resimulated(
        self, events: Sequence[Event], config: BranchingConfig
    ) -> Sequence[Event] | None:
        probe = [event.entropy for event in events if isinstance(event, Probed)]
        threshold = threshold_in_nats(config, self.card.vocab_size, probe)
        try:
            what_if = resimulate(events, threshold, config.r)
        except EabError:
            return None
        ended = fold(what_if.events).ended
        exact = not what_if.unknowns and ended is not None and ended.reason == "finished"
        return what_if.events if exact else None


def _card_of(model: LanguageModel) -> ModelCard:
    """The model's card, with a hash of its weights if it was given loaded: otherwise, models of one
    shape would have the same cells.
    """
    if isinstance(model, TransformersModel) and model.is_given:
        return structs.replace(model.card, sha256=model.fingerprint())
    return model.card


AUTO: Final = "auto"
MOST_ITEMS: Final = 8  # items per worker at a time
RETRIES: Final = 2  # how often items whose worker is lost are run again
RESTARTS: Final = 100  # of each worker
WAIT_SECONDS: Final = 0.2
LOAD_SECONDS: Final = 900.0  # until which workers must have loaded the model


class _Worker:
    def __init__(self, load: Callable[[], LanguageModel], measurement: Measurement) -> None:
        self._executor = InProcess(load(), measurement)

    def card(self) -> ModelCard:
        """The card of the loaded model."""
        return self._executor.card

    def outcomes(self, items: Sequence[Item]) -> list[Outcome]:
        """The outcomes of all items."""
        return [outcome for outcome in self._executor.outcomes(items) if outcome is not None]


class RayActors:
    """Runs items on a Ray cluster; the end of the `with` statement releases the workers.

    Args:
        address: The cluster. `auto`: the one on this machine, which is started if there is none.
        workers: How many workers load the model. They divide the CPUs and GPUs of the cluster.

    Raises:
        RunsError: Ray or its cluster is missing, or the workers have different models or are lost.
        ModelError: A worker cannot load the model.
    """

    def __init__(
        self,
        load: Callable[[], LanguageModel],
        measurement: Measurement,
        address: str = AUTO,
        workers: int = 2,
    ) -> None:
        self._ray = _import_ray()
        self._own = not self._ray.is_initialized()
        if self._own:
            _connect(self._ray, address)
        self._workers: list[Any] = []
        try:
            actor = self._ray.remote(_Worker).options(
                **_share_of(self._ray.cluster_resources(), workers),
                max_restarts=RESTARTS,
                max_task_retries=RETRIES,
            )
            self._workers = [actor.remote(load, measurement) for _ in range(workers)]
            self.card = self._common_card()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "RayActors":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the workers, and also the cluster if it was started here."""
        for worker in self._workers:
            self._ray.kill(worker)
        self._workers = []
        if self._own:
            self._ray.shutdown()

    def outcomes(self, items: Sequence[Item]) -> Generator[Outcome | None]:
        pool = import_module("ray.util").ActorPool(self._workers)
        for batch in _batches(items, len(self._workers)):
            pool.submit(lambda worker, batch: worker.outcomes.remote(batch), batch)
        left, reason = {item.shared: item for item in items}, ""
        while pool.has_next():
            try:
                outcomes: list[Outcome] = pool.get_next_unordered(timeout=WAIT_SECONDS)
            except TimeoutError:
                yield None
                continue
            except self._ray.exceptions.RayError as error:
                reason = _last_line(error)
                continue
            for outcome in outcomes:
                left.pop(outcome.item.shared, None)
            yield from outcomes
        for item in left.values():
            words = (
                f"{item.prompt.id}, seed {item.configs[0].seed}: its Ray worker failed: {reason}"
            )
            yield Outcome(item, (), (words,))

    def _common_card(self) -> ModelCard:
        asked = [worker.card.remote() for worker in self._workers]
        try:
            cards: list[ModelCard] = self._ray.get(asked, timeout=LOAD_SECONDS)
        except self._ray.exceptions.GetTimeoutError as error:
            raise RunsError(
                f"the Ray workers have not all loaded the model after {LOAD_SECONDS:g} s; the "
                "cluster may have too few free CPUs or GPUs. Try again when it has, or use fewer "
                "workers"
            ) from error
        except self._ray.exceptions.RayError as error:
            raise ModelError(f"a Ray worker cannot load the model: {_last_line(error)}") from error
        if any(card != cards[0] for card in cards):
            raise RunsError(
                "the Ray workers have different devices or number formats. Set them with "
                "--device and --dtype"
            )
        return cards[0]


def _batches(items: Sequence[Item], workers: int) -> list[Sequence[Item]]:
    """Single items first, so that their cells are there early."""
    most = max(1, min(MOST_ITEMS, len(items) // (2 * workers)))
    rest = items[workers:]
    batches = [rest[start : start + most] for start in range(0, len(rest), most)]
    return [*([item] for item in items[:workers]), *batches]


def _last_line(error: Exception) -> str:
    """The reason at the end of an error's traceback."""
    return str(error).strip().splitlines()[-1]


def _share_of(resources: dict[str, float], workers: int) -> dict[str, float]:
    shares = {name: resources.get(name, 0.0) / workers for name in ("CPU", "GPU")}
    whole = {name: float(int(part)) if part > 1 else part for name, part in shares.items()}
    return {"num_cpus": whole["CPU"], "num_gpus": whole["GPU"]}


def _import_ray() -> ModuleType:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics
    try:
        return import_module("ray")
    except ImportError as error:
        raise RunsError(
            'Ray is not installed. Install it with: pip install "eab-explorer[ray]", or leave out '
            "--ray"
        ) from error


def _connect(ray: ModuleType, address: str) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, ValueError) as error:
        if address != AUTO:
            raise RunsError(
                f"there is no Ray cluster at {quoted(address)}: {str(error)[:200]}"
            ) from error
        ray.init(address="local", include_dashboard=False, **quiet)
