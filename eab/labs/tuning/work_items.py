"""Groups the cells of a sweep into items that one model run may answer, and defines executors."""

import hashlib
import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Protocol

from msgspec import structs

from eab.branching.own import GivenPolicy
from eab.config import SETTINGS, BranchingConfig
from eab.events import ModelCard
from eab.labs.tuning.cell import Cell
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.prompt_sets import TuningPrompt
from eab.settings import Real

# Without the model, a finished run can be recomputed for other values of these (eab.what_if).
RESIMULATED: Final = ("entropy_threshold", "r")
# Sentences, what is for comparisons, and what the answers in the cells say already
_DESCRIPTIONS: Final = ("own_memory", "attention", "window_rows", "thinking", "own_decoder")


@dataclass(frozen=True, slots=True)
class Item:
    """Cells with the same prompt, seed and settings, except for the threshold and r."""

    prompt: TuningPrompt
    configs: tuple[BranchingConfig, ...]  # lowest threshold first
    policy: GivenPolicy | None = None  # the caller's own, which `configs` only name

    @property
    def most_tokens(self) -> int:
        """The most tokens that the cells of the item can generate."""
        return sum(config.max_paths * config.max_new_tokens for config in self.configs)

    @property
    def shared(self) -> tuple[Any, ...]:
        """What its cells have in common."""
        return self.prompt.id, *_shared(self.configs[0])


def _shared(config: BranchingConfig) -> tuple[Any, ...]:
    return tuple(getattr(config, name) for name in SETTINGS if name not in RESIMULATED)


def items_of(prompts: Sequence[TuningPrompt], grid: Grid) -> list[Item]:
    """All cells of a sweep, first seed first; ConfigError if values contradict each other."""
    groups: dict[Any, list[BranchingConfig]] = {}
    for config in grid.configs():
        groups.setdefault(_shared(config), []).append(config)
    for group in groups.values():
        group.sort(key=lambda config: config.entropy_threshold)
    return [
        Item(
            prompt,
            tuple(replace(config, seed=seed) for config in group),
            grid.policies.get(group[0].policy),
        )
        for seed in grid.seeds
        for prompt in prompts
        for group in groups.values()
    ]


def cell_key(card: ModelCard, prompt: TuningPrompt, config: BranchingConfig) -> str:
    """A hash of everything that determines a cell."""
    settings = {
        name: float(value) if isinstance(SETTINGS[name].values, Real) else value
        for name, value in asdict(config).items()
    }
    values = [model_json(card), asdict(prompt), settings]
    text = json.dumps(values, sort_keys=True, default=structs.asdict)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:24]


def model_json(card: ModelCard) -> dict[str, Any]:
    """What determines a cell in a model's card, without descriptions, as in a JSON file."""
    given = structs.asdict(card)
    values = {name: given[name] for name in given if name not in _DESCRIPTIONS}
    return dict(json.loads(json.dumps(values)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an item, or of a part of it: of some of its settings."""

    item: Item
    cells: tuple[Cell, ...]
    failures: tuple[str, ...] = ()  # why other cells are missing, and which runs could not be kept
    # the contents of the cells' run files by name, if they are kept
    runs: Mapping[str, bytes] = field(default_factory=dict)


class Executor(Protocol):
    """An interface that runs the items of a sweep."""

    @property
    def card(self) -> ModelCard:
        """The card of the model that runs the items."""
        ...

    def outcomes(self, items: Sequence[Item]) -> Generator[Outcome | None]:
        """Run the items, yielding their outcomes in any order, and often None in between, so that
        the caller can stop.
        """
        ...
