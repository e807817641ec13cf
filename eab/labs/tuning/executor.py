"""What an executor of a sweep gives back; and the executor itself, as an interface."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from eab.events import ModelCard
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.work_items import Item


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an item."""

    item: Item
    cells: tuple[Cell, ...]
    failures: tuple[str, ...] = ()  # why the others have none, and which runs could not be kept
    # the run files of its cells by their names, if they are kept
    runs: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """Progress between outcomes."""

    tokens: float = 0.0  # how much of `Item.most_tokens` is done of the items in work


class Executor(Protocol):
    """Where the items of a sweep are run."""

    @property
    def card(self) -> ModelCard:
        """The model that runs them."""
        ...

    def outcomes(self, items: Sequence[Item]) -> Generator[Outcome | SweepProgress]:
        """Run the items; to stop, stop iterating.

        Yields each item's outcome, in any order, and several times a second its progress.
        """
        ...
