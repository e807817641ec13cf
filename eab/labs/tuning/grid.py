"""The settings that a sweep tries: all combinations of the given values, or a random sample. And
the result of one cell, one prompt under one setting with one seed: the costs and gains that are
measured in it.
"""

import math
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args

from msgspec import Meta

from eab.config import OF_POLICIES, SETTINGS, BranchingConfig, PolicyName
from eab.engine.branching.own import own_name
from eab.engine.branching.presets import OF_PRESETS, PRESETS, START, starting_config
from eab.errors import ConfigError, RecordError
from eab.formatting import quoted
from eab.run.events.fields import Count, PromptText, Seconds
from eab.run.record import SUFFIX
from eab.run.record.files import checked_id
from eab.text_values import NotDeclaredError, listed, read

if TYPE_CHECKING:
    import pandas as pd


MAX_CONFIGS: Final = 20_000  # combinations in a grid that is run in full
MAX_SEEDS: Final = 1_000
MAX_VALUES: Final = 1_000  # values of one setting in a file
SAMPLE_SEED: Final = 0
# Settings without effect under a policy; their values are not tried separately there.
_OF_THRESHOLD: Final = frozenset({"entropy_threshold", "threshold_unit"})
_OF_FORKS: Final = _OF_THRESHOLD | {"branch_factor", "min_fork_weight", "branch_min_p"}
WITHOUT_EFFECT: Final[Mapping[str, frozenset[str]]] = {
    policy: frozenset(chain(*(names for name, names in OF_POLICIES.items() if name != policy)))
    | (frozenset() if policy in ("fair", "original") else _OF_FORKS)
    | ({"max_paths"} if policy == "greedy" else set())
    for policy in get_args(PolicyName)
}


@dataclass(frozen=True, slots=True)
class Grid:
    """Values of some settings, to be tried in all combinations.

        Grid({"max_paths": [4, 8]}, eab.starting_config(max_new_tokens=6), seeds=range(2))

    A setting without effect under a policy, such as the threshold under `independent`, keeps the
    value of `base` there: such a combination is tried only once.

    Attributes:
        varied: The values of each setting that varies, by its name in eab.config, or the names of
            presets as `preset`: each sets what shapes a tree, except for settings that vary
            themselves. A policy may be a rule or a policy of your own.
        base: The other settings; by default the starting values. Varied thresholds are in its unit,
            by default in nats.
        seeds: Each combination is tried with each of these.
        policies: Your own policies in `varied`, by their names.
        sample: Try only this many combinations, drawn at random without replacement; 0 tries all.
            The same grid always draws the same combinations.

    Raises:
        ConfigError: A value is not allowed, or there are no combinations or too many.
    """

    varied: Mapping[str, Annotated[Sequence[Any], Meta(max_length=MAX_VALUES)]] = field(
        default_factory=dict
    )
    base: BranchingConfig = START
    seeds: Annotated[Sequence[int], Meta(max_length=MAX_SEEDS)] = (0,)
    sample: int = 0
    policies: Mapping[str, Any] = field(init=False, compare=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.varied, Mapping):
            raise ConfigError(
                f"the varied settings are {quoted(self.varied)}; give the values of each by name, "
                'such as {"entropy_threshold": [0.3, 0.65]}'
            )
        varied = {name: _listed(values) for name, values in self.varied.items()}
        own = [each for each in varied.get("policy", ()) if not isinstance(each, str)]
        object.__setattr__(self, "policies", {own_name(each): each for each in own})
        if own:
            names = (each if isinstance(each, str) else own_name(each) for each in varied["policy"])
            varied["policy"] = [*names]
        object.__setattr__(self, "varied", varied)
        object.__setattr__(self, "seeds", _listed(self.seeds))
        if not isinstance(self.base, BranchingConfig):
            raise ConfigError(f"the base is {quoted(self.base)}; give a BranchingConfig")
        for name, values in self.varied.items():
            if name == "seed":
                raise ConfigError("the seed is in varied; give seeds=[...] instead")
            _check_values(name, values)
        if self.base is START and "entropy_threshold" in self.varied:  # in nats, as without a grid
            in_nats = starting_config(entropy_threshold=self.varied["entropy_threshold"][0])
            object.__setattr__(self, "base", in_nats)
        _check_values("seed", self.seeds)
        if len(self.seeds) > MAX_SEEDS:
            raise ConfigError(
                f"there are {len(self.seeds):,} seeds; at most {MAX_SEEDS:,} are allowed. Give "
                "fewer"
            )
        if not isinstance(self.sample, int) or isinstance(self.sample, bool) or self.sample < 0:
            raise ConfigError(
                f"the sample is {quoted(self.sample)}; it must be a whole number from 0 (all "
                "combinations)"
            )
        # random.sample needs a range whose length fits into an index.
        if self.tried > MAX_CONFIGS or self.combinations > sys.maxsize:
            raise ConfigError(
                f"the grid has {self.combinations:,} combinations; at most {MAX_CONFIGS:,} are "
                "allowed. Give fewer values, or run a sample"
            )

    @property
    def combinations(self) -> int:
        """The number of different combinations, not counting seeds."""
        return sum(_product(axes) for _, axes in self._parts())

    def configs(self) -> list[BranchingConfig]:
        """The combinations to try, with the seed of `base`; ConfigError if one is contradictory."""
        every = range(self.combinations)
        numbers = (
            every
            if self.tried == len(every)
            else sorted(random.Random(SAMPLE_SEED).sample(every, self.sample))
        )
        return [self._config(number) for number in numbers]

    @property
    def tried(self) -> int:
        """How many combinations are tried."""
        return min(self.sample or self.combinations, self.combinations)

    def _parts(self) -> Iterator[tuple[str, dict[str, Sequence[Any]]]]:
        """Each policy, with the values of the other varying settings that affect it."""
        for policy in self.varied.get("policy", (self.base.policy,)):
            without = WITHOUT_EFFECT.get(policy, frozenset()) | {"policy"}
            without |= set() if self._of_presets(policy) else {"preset"}
            names = [name for name in self.varied if name not in without]
            yield policy, {name: self.varied[name] for name in names}

    def _of_presets(self, policy: str) -> frozenset[str]:
        """The settings that a varying preset sets under a policy."""
        varied = frozenset(self.varied)
        own = varied | _OF_THRESHOLD if varied & _OF_THRESHOLD else varied
        return frozenset(OF_PRESETS) - own - WITHOUT_EFFECT.get(policy, frozenset())

    def _config(self, number: int) -> BranchingConfig:
        policy, axes, number = self._part_of(number)
        chosen: dict[str, Any] = {"policy": policy}
        for name in reversed(axes):
            number, place = divmod(number, len(axes[name]))
            chosen[name] = axes[name][place]
        if "preset" in chosen:
            settings = PRESETS[chosen.pop("preset")].settings
            chosen |= {name: settings[name] for name in self._of_presets(policy)}
        return replace(self.base, **chosen)

    def _part_of(self, number: int) -> tuple[str, dict[str, Sequence[Any]], int]:
        """The part that contains a combination, and the combination's number within it."""
        for policy, axes in self._parts():
            if number < _product(axes):
                return policy, axes, number
            number -= _product(axes)
        raise IndexError(number)


def _product(axes: Mapping[str, Sequence[Any]]) -> int:
    return math.prod(len(values) for values in axes.values())


def _listed(values: Any) -> Any:
    """A Series, an array or a generator as a list; anything else is left for the checks."""
    if isinstance(values, Sequence) or (items := listed(values)) is None:
        return values
    return items


def _check_values(name: str, values: Sequence[Any]) -> None:
    if isinstance(values, str | bytes) or not isinstance(values, Sequence) or not len(values):
        raise ConfigError(f"the values of {name} are {quoted(values)}; give a list of one or more")
    # The range of the threshold depends on its unit; whole configs are checked later.
    counts = Counter(starting_config(**{name: value}) for value in values)
    doubled = [value for value in values if counts[starting_config(**{name: value})] > 1]
    if doubled:
        raise ConfigError(
            f"the values of {name} have {quoted(doubled[0])} twice; give each value once"
        )


Made = Literal["run", "resimulated"]
Key = Annotated[str, Meta(pattern="^[0-9a-f]{24}$")]
Share = Annotated[float, Meta(ge=0.0, le=1.001)]  # rounding may lift a sum slightly above 1
Nats = Annotated[float, Meta(ge=-1e-3, le=100.0)]  # ... or an entropy slightly below 0
Brier = Annotated[float, Meta(ge=0.0, le=2.001)]


@dataclass(frozen=True, slots=True)
class Cell:
    """One prompt under one setting with one seed. In a table, each setting is a column."""

    key: Key  # a hash of model, prompt and settings, including the seed
    prompt_id: PromptText
    group: PromptText
    prompt: PromptText
    config: BranchingConfig  # the settings, including the seed
    made: Made  # `run`: by the model; `resimulated`: exactly, from another cell's run
    seconds: Seconds | None  # its share, by tokens, of its passes (measured); None if resimulated
    tokens: Count  # tokens through the model, including the prompt and pruned paths
    forks: Count
    paths: Count  # live and finished paths at the end, one per text
    kv_bytes: Count
    distinct_texts: Count
    distinct_answers: Count
    probability_seen: Share  # probability (0 to 1) of all texts seen that give an answer
    semantic_entropy: Nats | None  # of the answers, in nats; None if it was not measured
    semantic_entropy_error: Nats | None  # its standard error; None for a tree
    # root mean square difference between estimated and known probabilities, over the known answers
    # and all other answers together; None if no distribution is known
    distribution_error: Share | None
    correct: Share | None  # weight of the right answers; None if no right answer is known
    brier: Brier | None  # Brier score of the answers' weights, 0 (best) to 2; None like `correct`
    run_file: str | None
    label: Share | None = None  # weight of the texts with the prompt's label; None without one
    label_width: Share | None = None  # between the certain bounds of its probability

    @property
    def seed(self) -> int:
        """The seed in its settings."""
        return self.config.seed

    def row(self) -> dict[str, Any]:
        """The cell as table columns."""
        own: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            settings = {name: getattr(value, name, None) for name in SETTINGS}
            own |= settings if each.name == "config" else {each.name: value}
        return own


COLUMNS: Final = tuple(
    name for each in fields(Cell) for name in (SETTINGS if each.name == "config" else (each.name,))
)


def run_file_name(prompt_id: str, key: str) -> str:
    """The name of the run file of the cell with this key."""
    return f"{checked_id(prompt_id)}-{key}{SUFFIX}"


def cell_from_row(row: Mapping[str, Any]) -> Cell:
    """The cell with these columns; RecordError for missing columns and values that are not allowed.
    A setting without a column, from before there was this setting, has its default.
    """
    if not isinstance(row, Mapping):
        raise RecordError("it is not a cell")
    settings = {name: value for name, value in row.items() if name in SETTINGS}
    own = {name: value for name, value in row.items() if name not in SETTINGS}
    try:
        cell = read(own | {"config": settings}, Cell)
    except NotDeclaredError as error:
        raise RecordError(f"the cell has a value that is not allowed: {error}") from error
    own_file = Path(f"{cell.prompt_id}-{cell.key}{SUFFIX}").name
    if cell.run_file not in (None, own_file):  # it may only name a file in this folder
        raise RecordError(f"the cell has run_file {quoted(cell.run_file)}; that is not allowed")
    return cell


def cells_table(cells: Iterable[Cell]) -> "pd.DataFrame":
    """One row per cell, with `COLUMNS`; settings that are not always numbers become text."""
    import pandas as pd

    table = pd.DataFrame([cell.row() for cell in cells], columns=list(COLUMNS))
    for name in SETTINGS:
        if any(isinstance(value, str | tuple) for value in table[name]):
            table[name] = table[name].map(str)
    return table


@dataclass(frozen=True, slots=True)
class Quantity:
    """A numeric column of the cells."""

    column: str
    label: str
    unit: str  # unit, or what is counted; empty for a pure number
    more_is_better: bool  # whether larger values are better
    help: str = ""

    @property
    def axis(self) -> str:
        """The label with the unit, unless it names the unit, for the axis of a chart."""
        names_it = self.unit.lower() in self.label.lower()
        return self.label if names_it else f"{self.label} ({self.unit})"


_TOKENS = "All tokens in forward passes, including the prompt and dropped paths."
_BYTES = "The largest size of the KV cache during the run."
_TIME = "Wall time, with forward passes shared by other runs. Resimulated cells have none."
COSTS: Final = {
    each.column: each
    for each in (
        Quantity("tokens", "Tokens through the model", "tokens", False, _TOKENS),
        Quantity("kv_bytes", "Peak of the KV cache", "bytes", False, _BYTES),
        Quantity("seconds", "Time", "seconds", False, _TIME),
    )
}
_ERROR = "Root mean square error of the probabilities of the answers, where these are known."
_SEEN = "Total probability of all texts of the run."
_RIGHT = "Share of the weight on right answers, for prompts with a known answer."
_BRIER = (
    "Calibration: squared distance of the answers' weights from the truth, from 0 (best) to 2, for "
    "prompts with a known answer."
)
_LABEL = "How likely the prompt's label is: the weight of the texts that contain it."
_WIDTH = "Distance between the certain bounds of the label's probability."
GAINS: Final = {
    each.column: each
    for each in (
        Quantity("distribution_error", "Error of the answer distribution", "RMSE", False, _ERROR),
        Quantity("distinct_answers", "Distinct answers", "answers", True, "Different answers."),
        Quantity("distinct_texts", "Distinct texts", "texts", True, "Different texts."),
        Quantity("probability_seen", "Probability seen", "", True, _SEEN),
        Quantity("correct", "Weight of right answers", "", True, _RIGHT),
        Quantity("brier", "Brier score of the answers", "", False, _BRIER),
        Quantity("label", "Probability of the label", "", True, _LABEL),
        Quantity("label_width", "Width of the label's bounds", "", False, _WIDTH),
    )
}
PATHS: Final = Quantity("paths", "Paths", "paths", True)
