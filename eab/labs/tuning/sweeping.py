"""A sweep: every setting of a grid on every prompt, with every seed.

    for step in sweep(model, prompts, Grid({"entropy_threshold": [0.3, 0.65]}, seeds=range(8))):
        print(step.done, step.total, step.seconds_left, step.cells)

To stop, stop iterating. With a folder, finished cells are kept and the same sweep can be resumed.
"""

import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from eab.errors import ConfigError
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.journal import Journal
from eab.labs.tuning.measure import Measurement
from eab.labs.tuning.prompt_sets import TuningPrompt
from eab.labs.tuning.work_items import Executor, Item, cell_key, items_of

if TYPE_CHECKING:
    from eab.models.base import LanguageModel


@dataclass(frozen=True, slots=True)
class SweepStep:
    """The progress of a sweep, and its new cells."""

    cells: tuple[Cell, ...]  # new cells; in the first step, the cells that were already there
    failures: tuple[str, ...]  # why cells have failed since the last step
    done: int
    failed: int  # failed cells so far
    total: int
    resimulated: int  # how many of `done` were resimulated, without the model
    seconds_left: float | None  # estimated from tokens; None before anything is done


def sweep(
    model: "LanguageModel",
    prompts: Sequence[TuningPrompt],
    grid: Grid,
    *,
    folder: Path | None = None,
    measurement: Measurement | None = None,
    draft: "LanguageModel | None" = None,
    known: Iterable[Cell] = (),
) -> Generator[SweepStep]:
    """Make all cells of a grid with this model, several in each forward pass.

    With a folder, finished cells and a table of them are stored there, and are not made again.
    Without a folder, the cells in `known` are not made again.

    Raises:
        ConfigError: There are no prompts, or values of a combination contradict each other.
        RecordError: The folder cannot be used, or has the cells of another model.
    """
    from eab.labs.tuning.in_process import InProcess

    measurement = measurement or Measurement()
    executor = InProcess(model, measurement, draft)
    yield from sweep_with(executor, prompts, grid, folder, measurement, known)


def sweep_with(
    executor: Executor,
    prompts: Sequence[TuningPrompt],
    grid: Grid,
    folder: Path | None,
    measurement: Measurement,
    known: Iterable[Cell] = (),
) -> Generator[SweepStep]:
    """`sweep` with the items run by this executor; `measurement` must be the executor's."""
    if not prompts:
        raise ConfigError("there are no prompts; give at least one")
    items = items_of(prompts, grid)
    if folder is None:
        yield from _steps(executor, items, {cell.key: cell for cell in known})
        return
    with Journal(folder, executor.card, measurement) as journal:
        yield from _steps(executor, items, journal.known, journal)


def _steps(
    executor: Executor,
    items: Sequence[Item],
    known: Mapping[str, Cell],
    journal: Journal | None = None,
) -> Generator[SweepStep]:
    """Make the cells whose keys are not in `known`."""
    left, before = list[Item](), list[Cell]()
    for item in items:
        keys = {config: cell_key(executor.card, item.prompt, config) for config in item.configs}
        before += [known[key] for key in keys.values() if key in known]
        if missing := tuple(config for config, key in keys.items() if key not in known):
            left.append(replace(item, configs=missing))
    progress = _Progress(items, left)
    yield progress.step(tuple(before))
    with closing(executor.outcomes(left)) as outcomes:
        for outcome in outcomes:
            if outcome is None:
                yield progress.step()
                continue
            if journal is not None:
                journal.add(outcome)
            progress.tokens_done += outcome.item.most_tokens
            progress.failed += len(outcome.item.configs) - len(outcome.cells)
            yield progress.step(outcome.cells, outcome.failures)


class _Progress:
    def __init__(self, items: Sequence[Item], left: Sequence[Item]) -> None:
        self._start = time.monotonic()
        self._total = sum(len(item.configs) for item in items)
        self._tokens = sum(item.most_tokens for item in left)
        self._done = self._resimulated = self.tokens_done = self.failed = 0

    def step(self, cells: tuple[Cell, ...] = (), failures: tuple[str, ...] = ()) -> SweepStep:
        """The step that reports these new cells and failures."""
        self._done += len(cells)
        self._resimulated += sum(cell.made == "resimulated" for cell in cells)
        spent, done = time.monotonic() - self._start, self.tokens_done
        left = spent * (self._tokens - done) / done if done else None
        return SweepStep(
            cells, failures, self._done, self.failed, self._total, self._resimulated, left
        )
