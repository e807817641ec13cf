"""Runs the items of a sweep on a Ray cluster: each worker is an actor that loads the model once.

A worker gets several items at a time, so that they share forward passes. If a worker is lost, a new
one replaces it, and the items that it had not finished are run again.
"""

import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from eab.config import BranchingConfig
from eab.errors import ModelError, RunsError
from eab.events import ModelCard
from eab.formatting import quoted
from eab.labs.tuning.in_process import InProcess
from eab.labs.tuning.measure import Measurement
from eab.labs.tuning.work_items import Item, Outcome, SweepProgress, item_key
from eab.models.base import LanguageModel

AUTO: Final = "auto"
MOST_ITEMS: Final = 8  # items per worker at a time
MAX_LOSSES: Final = 3  # lost workers after which an item fails
WAIT_SECONDS: Final = 0.2


class _Worker:
    def __init__(self, load: Callable[[], LanguageModel], measurement: Measurement) -> None:
        self._executor = InProcess(load(), measurement)

    def card(self) -> ModelCard:
        """The card of the loaded model."""
        return self._executor.card

    def outcomes(self, items: Sequence[Item]) -> Iterator[Outcome]:
        """As Executor.outcomes, but without SweepProgress."""
        for event in self._executor.outcomes(items):
            if isinstance(event, Outcome):
                yield event


@dataclass(slots=True)
class _Share:
    worker: Any
    items: dict[str, Item]  # items that it has not finished, by key
    results: Any  # a stream of references to its outcomes

    def note(self, key: str, made: Sequence[BranchingConfig]) -> None:
        """Drop finished settings of an item."""
        item = self.items.pop(key)
        if left := tuple(config for config in item.configs if config not in made):
            self.items[key] = replace(item, configs=left)


class RayActors:
    """Runs items on a Ray cluster; the end of the `with` statement releases the workers.

    Args:
        address: The cluster. `auto`: the one on this machine, which is started if there is none.
        workers: How many workers load the model. They divide the CPUs and GPUs of the cluster.

    Raises:
        RunsError: Ray or its cluster is missing, or the workers have different models.
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
        self._arguments = (load, measurement)
        self._own = not self._ray.is_initialized()
        if self._own:
            _connect(self._ray, address)
        self._count = workers
        self._workers: list[Any] = []
        try:
            self._workers = [self._new_worker() for _ in range(workers)]
            self._card = self._common_card()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "RayActors":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def card(self) -> ModelCard:
        return self._card

    def close(self) -> None:
        """Stop the workers, and also the cluster if it was started here."""
        for worker in self._workers:
            self._ray.kill(worker)
        self._workers = []
        if self._own:
            self._ray.shutdown()

    def outcomes(self, items: Sequence[Item]) -> Generator[Outcome | SweepProgress]:
        waiting = deque(items)
        idle = [*self._workers]
        shares: list[_Share] = []
        losses: Counter[str] = Counter()
        most = max(1, min(MOST_ITEMS, len(items) // (2 * len(idle))))
        while waiting or shares:
            while waiting and idle:
                some = [waiting.popleft() for _ in range(min(most, len(waiting)))]
                shares.append(self._share(idle.pop(), some))
            for share in self._ready(shares):
                outcome, error = self._next(share)
                if outcome is not None:
                    share.note(item_key(self._card, outcome.item), outcome.item.configs)
                    yield outcome
                    continue
                shares.remove(share)
                idle.append(share.worker if error is None else self._replaced(share.worker))
                losses.update(share.items.keys())
                for key, item in reversed(share.items.items()):
                    if losses[key] < MAX_LOSSES:
                        waiting.appendleft(item)
                    else:
                        yield Outcome(item, (), (_lost_words(item, error),))
            yield SweepProgress()

    def _share(self, worker: Any, items: Sequence[Item]) -> _Share:
        results = worker.outcomes.options(num_returns="streaming").remote(items)
        return _Share(worker, {item_key(self._card, item): item for item in items}, results)

    def _ready(self, shares: Sequence[_Share]) -> list[_Share]:
        if not shares:
            return []
        ready, _ = self._ray.wait(
            [share.results for share in shares], timeout=WAIT_SECONDS, fetch_local=False
        )
        return [share for share in shares if share.results in ready]

    def _next(self, share: _Share) -> tuple[Outcome | None, Exception | None]:
        try:
            outcome: Outcome = self._ray.get(next(share.results))
            return outcome, None
        except StopIteration:
            return None, None
        except self._ray.exceptions.RayError as error:
            return None, error

    def _new_worker(self) -> Any:
        resources = self._ray.cluster_resources()
        shares = {name: resources.get(name, 0.0) / self._count for name in ("CPU", "GPU")}
        whole = {name: float(int(part)) if part > 1 else part for name, part in shares.items()}
        actor = self._ray.remote(_Worker)
        options = actor.options(num_cpus=whole["CPU"], num_gpus=whole["GPU"])
        return options.remote(*self._arguments)

    def _replaced(self, worker: Any) -> Any:
        self._ray.kill(worker)  # the worker may be hanging instead of dead
        new = self._new_worker()
        self._workers[self._workers.index(worker)] = new
        self._common_card()
        return new

    def _common_card(self) -> ModelCard:
        try:
            cards: list[ModelCard] = self._ray.get(
                [worker.card.remote() for worker in self._workers]
            )
        except self._ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]  # the last line of its traceback
            raise ModelError(f"a Ray worker cannot load the model: {reason}") from error
        if any(card != cards[0] for card in cards):
            raise RunsError(
                "the Ray workers have different devices or number formats. Set them with "
                "--device and --dtype"
            )
        return cards[0]


def _lost_words(item: Item, error: Exception | None) -> str:
    reason = "" if error is None else f" ({str(error).splitlines()[0]})"
    return (
        f"{item.prompt.id}, seed {item.configs[0].seed}: {MAX_LOSSES} workers were lost during "
        f"its run{reason}"
    )


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
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError) as error:
        if address != AUTO:
            raise RunsError(
                f"there is no Ray cluster at {quoted(address)}: {str(error)[:200]}"
            ) from error
        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
