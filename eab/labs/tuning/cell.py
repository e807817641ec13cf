"""The result of one cell of a sweep, one prompt under one setting with one seed; and the costs and
gains that are measured in it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta

from eab.config import SETTINGS, BranchingConfig
from eab.errors import RecordError
from eab.formatting import quoted
from eab.run.events.fields import Count, PromptText, Seconds
from eab.run.record import SUFFIX
from eab.run.record.files import checked_id
from eab.run.record.typed_json import NotDeclaredError, read

if TYPE_CHECKING:
    import pandas as pd

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
