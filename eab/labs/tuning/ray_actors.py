"""Runs the items of a sweep on a Ray cluster: each worker is an actor that loads the model once.

A worker gets several items at a time, so that they share forward passes. Ray restarts a lost worker
and runs its items again.
"""

import logging
import os
from collections.abc import Callable, Generator, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from eab.errors import ModelError, RunsError
from eab.events import ModelCard
from eab.formatting import quoted
from eab.labs.tuning.in_process import InProcess
from eab.labs.tuning.measure import Measurement
from eab.labs.tuning.sweeping import Item, Outcome
from eab.models.base import LanguageModel

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
