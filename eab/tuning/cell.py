"""The result of one cell of a sweep: what one prompt gave under one setting with one seed."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from eab.config import SETTINGS, BranchingConfig
from eab.errors import ConfigError, RecordError
from eab.formatting import quoted
from eab.record import SUFFIX

if TYPE_CHECKING:
    import pandas as pd

Made = Literal["run", "resimulated"]
_KEY: Final = re.compile("[0-9a-f]{24}")


@dataclass(frozen=True, slots=True)
class Cell:
    """One prompt under one setting with one seed. In a table, the settings are columns, too.

    Attributes:
        key: Identifies it: a hash of model, prompt and settings, with the seed.
        prompt_id: The prompt's id in its set.
        group: The kind of prompt; may be empty.
        prompt: The prompt.
        config: The settings, with the seed.
        made: `run` by the model, or `resimulated` from the run of another cell, exactly.
        seconds: Its part of the time of its passes, which it shares with other cells (measured; by
            tokens); None if it is resimulated.
        tokens: Tokens through the model, with the prompt and pruned paths.
        forks: Forks of the tree.
        paths: Live and finished paths at the end: the texts.
        kv_bytes: The most KV bytes alive at once.
        distinct_texts: Different texts.
        distinct_answers: Different answers.
        probability_seen: Probability (0 to 1) of all texts seen that give an answer.
        semantic_entropy: Weighted semantic entropy of the answers, in nats.
        semantic_entropy_error: Its standard error; None for a tree, see
            `eab.analysis.uncertainty.Uncertainty`.
        distribution_error: Root mean square difference between the estimated and the known
            probability of the known answers and of all others together; None if no distribution is
            known.
        correct: Weight of the right answers; None if none is known.
        run_file: Name of the file with its run; None if there is none.
    """

    key: str
    prompt_id: str
    group: str
    prompt: str
    config: BranchingConfig
    made: Made
    seconds: float | None
    tokens: int
    forks: int
    paths: int
    kv_bytes: int
    distinct_texts: int
    distinct_answers: int
    probability_seen: float
    semantic_entropy: float
    semantic_entropy_error: float | None
    distribution_error: float | None
    correct: float | None
    run_file: str | None

    @property
    def seed(self) -> int:
        """The seed of its settings."""
        return self.config.seed

    def row(self) -> dict[str, Any]:
        """Its columns."""
        own: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            settings = {name: getattr(value, name, None) for name in SETTINGS}
            own |= settings if each.name == "config" else {each.name: value}
        return own


COLUMNS: Final = tuple(
    name for each in fields(Cell) for name in (SETTINGS if each.name == "config" else (each.name,))
)
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    **dict.fromkeys(("key", "prompt_id", "group", "prompt", "made"), (str,)),
    **dict.fromkeys(
        ("tokens", "forks", "paths", "kv_bytes", "distinct_texts", "distinct_answers"), (int,)
    ),
    **dict.fromkeys(("probability_seen", "semantic_entropy"), (float, int)),
    **dict.fromkeys(
        ("seconds", "semantic_entropy_error", "distribution_error", "correct"),
        (float, int, type(None)),
    ),
    "run_file": (str, type(None)),
}


def run_file_name(key: str) -> str:
    """The name of the run file of the cell with this key."""
    return f"{key}{SUFFIX}"


def cell_from_row(row: Mapping[str, Any]) -> Cell:
    """The cell with these columns.

    Raises:
        RecordError: A column is missing, or has a value that is not allowed.
    """
    missing = [name for name in COLUMNS if name not in row]
    if missing:
        raise RecordError(f"the cell has no column {missing[0]!r}; it has {quoted([*row])}")
    for name, kinds in _KINDS.items():
        if not isinstance(row[name], kinds) or isinstance(row[name], bool):
            raise RecordError(f"the cell has {name} = {quoted(row[name])}; that is not allowed")
    # The name of its run file is taken for a file in the folder, and for nothing else.
    if not _KEY.fullmatch(row["key"]) or row["run_file"] not in (None, run_file_name(row["key"])):
        raise RecordError(
            f"the cell has key {quoted(row['key'])} and run_file {quoted(row['run_file'])}; that "
            "is not allowed"
        )
    if row["made"] not in get_args(Made):
        raise RecordError(f"the cell has made = {quoted(row['made'])}; that is not allowed")
    try:
        config = BranchingConfig.from_settings({name: row[name] for name in SETTINGS})
    except ConfigError as error:
        raise RecordError(f"the cell has settings that are not allowed: {error}") from error
    return Cell(config=config, **{name: row[name] for name in _KINDS})


def cells_table(cells: Iterable[Cell]) -> "pd.DataFrame":
    """A row per cell; the columns are `COLUMNS`. A setting that is a word in some cells (r = auto)
    is text in all.
    """
    import pandas as pd

    table = pd.DataFrame([cell.row() for cell in cells], columns=list(COLUMNS))
    for name in SETTINGS:
        if any(isinstance(value, str) for value in table[name]):
            table[name] = table[name].map(str)
    return table
