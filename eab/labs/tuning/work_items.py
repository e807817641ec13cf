"""Groups the cells of a sweep into items that one model run may answer, and defines executors."""

import hashlib
import json
from collections.abc import Container, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Protocol

from eab.branching.own import GivenPolicy
from eab.config import SETTINGS, BranchingConfig
from eab.events import ModelCard
from eab.labs.tuning.cell import LATER_SETTINGS, Cell
from eab.labs.tuning.grid import Grid
from eab.labs.tuning.prompt_sets import TuningPrompt
from eab.settings import Real

# Without the model, a finished run can be recomputed for other values of these (eab.what_if).
RESIMULATED = ("entropy_threshold", "r")

# Sentences, what is for comparisons, and what the answers in the cells say already
_SENTENCES: Final = ("own_memory", "attention", "window_rows", "thinking", "own_decoder")
_LATER: Final = {"layer_rows": [], "state_bytes": 0, "shares_rows": True}


@dataclass(frozen=True, slots=True)
class Item:
    """Cells with the same prompt, seed and settings, except for the threshold and r."""

    prompt: TuningPrompt
    configs: tuple[BranchingConfig, ...]  # lowest threshold first
    policy: GivenPolicy | None = None  # the caller's own, which `configs` only name

    @property
    def most_tokens(self) -> int:
        """The most tokens that a single run of the item can generate."""
        return self.configs[0].max_paths * self.configs[0].max_new_tokens

    def without(self, keys: Container[str], card: ModelCard) -> "Item | None":
        """The item without the cells that have these keys; None if no cell remains."""
        left = [
            config for config in self.configs if cell_key(card, self.prompt, config) not in keys
        ]
        return replace(self, configs=tuple(left)) if left else None


def items_of(prompts: Sequence[TuningPrompt], grid: Grid) -> list[Item]:
    """All cells of a sweep, first seed first; ConfigError if values contradict each other."""
    groups: dict[Any, list[BranchingConfig]] = {}
    for config in grid.configs():
        kept = tuple(getattr(config, name) for name in SETTINGS if name not in RESIMULATED)
        groups.setdefault(kept, []).append(config)
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
    return _hash([model_json(asdict(card)), prompt.as_json(), _as_json(config)])


def item_key(card: ModelCard, item: Item) -> str:
    """A hash of everything that the cells of an item share."""
    shared = {
        name: value for name, value in _as_json(item.configs[0]).items() if name not in RESIMULATED
    }
    return _hash([model_json(asdict(card)), item.prompt.as_json(), shared])


def model_json(card: dict[str, Any]) -> dict[str, Any]:
    """The parts of a model's card that determine a cell, as JSON values: without descriptions, and
    without later fields at their defaults, so that keys in older files stay valid.
    """
    values = json.loads(json.dumps(card))  # tuples become lists, as in a file
    return {
        name: value
        for name, value in values.items()
        if name not in _SENTENCES and (name not in _LATER or value != _LATER[name])
    }


def _as_json(config: BranchingConfig) -> dict[str, Any]:
    """The settings in a normal form: 1 and 1.0 are the same threshold. Later settings are left out
    at their defaults, so that keys in older files stay valid.
    """
    return {
        name: float(value) if isinstance(SETTINGS[name].values, Real) else value
        for name, value in asdict(config).items()
        if name not in LATER_SETTINGS or value != LATER_SETTINGS[name]
    }


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an item, or of a part of it: of some of its settings."""

    item: Item
    cells: tuple[Cell, ...]
    failures: tuple[str, ...] = ()  # why other cells are missing, and which runs could not be kept
    # the contents of the cells' run files by name, if they are kept
    runs: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """Progress between outcomes."""

    tokens: float = 0.0  # how much of `Item.most_tokens` is done, over the items in progress


class Executor(Protocol):
    """An interface that runs the items of a sweep."""

    @property
    def card(self) -> ModelCard:
        """The card of the model that runs the items."""
        ...

    def outcomes(self, items: Sequence[Item]) -> Generator[Outcome | SweepProgress]:
        """Run the items, yielding their outcomes in any order, and frequent progress."""
        ...
